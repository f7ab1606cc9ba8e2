package org.apache.spark.sql.execution.streaming.state.incremental.observed

import scala.util.control.NonFatal

/**
 * Matches what must not reach a query or Spark, because nobody's data depend on reports: every error but those of the
 * JVM itself. A LinkageError is among them: it comes of a release of Spark whose internal classes are others.
 */
private[observed] object Harmless {
  def unapply(error: Throwable): Option[Throwable] = error match {
    case e: LinkageError => Some(e)
    case NonFatal(e) => Some(e)
    case _ => None
  }
}
