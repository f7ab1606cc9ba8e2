package org.apache.spark.sql.execution.streaming.state.incremental.migration

import java.io.{FileNotFoundException, IOException}

import org.apache.spark.SparkThrowable
import org.apache.spark.sql.execution.streaming.state.incremental.agent.AgentException

/** A migration that cannot be made of this checkpoint. */
private[migration] final class MigrationException(val kind: String, message: String) extends Exception(message)

/** What went wrong, as the control plane sorts errors (docs/protocol.md). */
private[migration] object Failures {
  def kind(e: Throwable): String = {
    val all = chain(e)
    all.collectFirst {
      case known: MigrationException => known.kind
      case agent: AgentException => agent.kind
    }.orElse {
      if (all.exists(_.isInstanceOf[FileNotFoundException])) Some("missing")
      else if (all.exists(cannotLoad)) Some("damaged")
      else if (all.exists(_.isInstanceOf[IOException])) Some("storage")
      else None
    }.getOrElse("internal")
  }

  private def cannotLoad(e: Throwable): Boolean = e match {
    case spark: SparkThrowable => Option(spark.getCondition).exists(_.startsWith("CANNOT_LOAD_STATE_STORE"))
    case _ => false
  }

  /** The messages of the exception and its causes, each once. */
  def message(e: Throwable): String =
    chain(e).map(one => Option(one.getMessage).getOrElse(one.getClass.getName)).foldLeft(Vector.empty[String]) {
      (told, next) => if (told.exists(_.contains(next))) told else told :+ next
    }.mkString(": ")

  private def chain(e: Throwable): Seq[Throwable] =
    Iterator.iterate(e)(_.getCause).takeWhile(_ != null).take(16).toSeq
}
