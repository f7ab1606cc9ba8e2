package org.apache.spark.sql.execution.streaming.state.incremental

import java.nio.charset.StandardCharsets
import java.util.regex.Pattern

import scala.util.control.NonFatal

import org.apache.hadoop.fs.Path

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.observed.Observatory
import org.apache.spark.sql.execution.streaming.state.incremental.release.SparkNames.{
  CheckpointFileManager, StreamExecution, StreamingQueryWrapper
}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.streaming.StreamingQueryListener

/**
 * A listener that logs an error when a query goes on with another state store than the session asks for: Spark keeps
 * the provider class in the query's offset log and ignores the session's option. Set it with
 * `spark.sql.streaming.streamingQueryListeners`; it never fails a query.
 */
final class PinnedProviderListener extends StreamingQueryListener with Logging {
  import StreamingQueryListener._

  // Spark makes this listener on the driver, for a session's first query, so the tab needs no option.
  private val observatory = Observatory.start()

  // Spark calls this in the query's own thread, whose session is the active one.
  override def onQueryStarted(event: QueryStartedEvent): Unit =
    try {
      val session = SparkSession.active
      val asked = session.conf.get(SQLConf.STATE_STORE_PROVIDER_CLASS.key)
      if (asked == classOf[IncrementalStateStoreProvider].getName) {
        val execution = session.streams.get(event.id) match {
          case wrapper: StreamingQueryWrapper => Some(wrapper.streamingQuery)
          case execution: StreamExecution => Some(execution)
          case _ => None
        }
        execution.foreach { query =>
          observatory.foreach(_.started(query))
          check(query, asked)
        }
      }
    } catch {
      case NonFatal(e) => logDebug("Failed to read the state store of a query from its offset log", e)
    }

  private def check(query: StreamExecution, asked: String): Unit =
    PinnedProviderListener.pinned(query).filter(_ != asked).foreach { other =>
      logError(s"The query ${Option(query.name).getOrElse(query.id)} does NOT use $asked: the query was started " +
        s"with $other, and Spark keeps that for the life of its checkpoint " +
        s"${query.resolvedCheckpointRoot}. Stop it and move its state with `state-store migrate`, or begin with a new " +
        "checkpoint location, to use the incremental state store, or set " +
        s"${SQLConf.STATE_STORE_PROVIDER_CLASS.key} back for this query to avoid this message.")
    }

  override def onQueryProgress(event: QueryProgressEvent): Unit = observatory.foreach(_.progressed(event.progress))

  override def onQueryTerminated(event: QueryTerminatedEvent): Unit =
    observatory.foreach(_.terminated(event.runId.toString, event.exception))
}

private object PinnedProviderListener {
  private val Entry =
    (Pattern.quote("\"" + SQLConf.STATE_STORE_PROVIDER_CLASS.key + "\"") + "\\s*:\\s*\"([^\"]+)\"").r

  /** Returns the provider class in the newest entry of the query's offset log. */
  def pinned(query: StreamExecution): Option[String] = {
    val offsets = new Path(query.resolvedCheckpointRoot, "offsets")
    val files = CheckpointFileManager.create(offsets, query.sparkSession.sessionState.newHadoopConf())
    if (!files.exists(offsets)) None
    else {
      val batches = files.list(offsets).map(_.getPath).filter(_.getName.forall(_.isDigit))
      batches.maxByOption(_.getName.toLong).flatMap { newest =>
        val in = files.open(newest)
        try Entry.findFirstMatchIn(new String(in.readAllBytes(), StandardCharsets.UTF_8)).map(_.group(1))
        finally in.close()
      }
    }
  }
}
