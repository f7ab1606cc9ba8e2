package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.IOException

import scala.jdk.CollectionConverters._

import org.apache.hadoop.fs.Path

import org.apache.spark.SparkException
import org.apache.spark.sql.errors.QueryExecutionErrors
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.UnknownFormatException
import org.apache.spark.sql.execution.streaming.state.incremental.release.SparkNames.ConvertableToCannotLoadStoreError
import org.apache.spark.sql.execution.streaming.state.incremental.settings.LocalDisks

/**
 * A failure of the agent, or on the way to it, in the words that the user sees.
 *
 * @param kind one of the error kinds of the bridge protocol: option, missing, damaged, format, storage,
 *             unknown, conflict, busy, internal
 * @param file the file that failed, if there is one
 * @param option the option to correct, if there is one
 */
final class AgentException(
    val kind: String,
    text: String,
    val file: Option[String] = None,
    val option: Option[String] = None,
    cause: Throwable = null)
    extends RuntimeException(AgentException.describe(kind, text, file, option), cause)
    with ConvertableToCannotLoadStoreError {

  /**
   * Returns Spark's error for the same failure, with this exception as its cause.
   *
   * It has Spark's condition, and the words of this exception: a driver shows the words of the error alone, and
   * those of Spark say nothing of the reason, or tell to clear the checkpoint.
   */
  override def convertToCannotLoadStoreError(): SparkException = {
    val missing = file.filter(_ => kind == "missing")
    val error = missing
      .map(f =>
        QueryExecutionErrors.failedToReadDeltaFileNotExistsError(
          new Path(f), "the incremental state store", this))
      .getOrElse(QueryExecutionErrors.cannotLoadStore(this))
      .asInstanceOf[SparkException]
    val first = missing.map(f => s"'$f' does not exist: ").getOrElse("") // as Spark's stores say it
    new SparkException(
      s"[${error.getCondition}] $first$getMessage",
      cause = this,
      errorClass = Some(error.getCondition),
      messageParameters = error.getMessageParameters.asScala.toMap)
  }
}

object AgentException {

  /** Returns the error that the agent reports if it finds the unknown format first. */
  def of(error: UnknownFormatException): AgentException =
    new AgentException("format", error.getMessage, file = Some(error.file), cause = error)

  /** Returns the error for a local disk of this executor that is full or fails; it names the directory. */
  def ofLocalDisk(directory: String, error: IOException): AgentException =
    new AgentException("storage",
      s"the local disk of '$directory' failed: ${LocalDisks.reason(error)}. ${LocalDisks.remedy(error)}",
      file = Some(directory), option = Some(LocalDisks.Option), cause = error)

  private val advice = Map(
    "option" -> "Correct the option and start the query again.",
    "missing" -> "`state-store checkpoints` lists the versions that can be restored.",
    "damaged" -> "`state-store verify` checks every file of the checkpoint.",
    "format" -> "Use a release of the state store that is at least as new as the one that wrote it.",
    "storage" -> "Check that the checkpoint storage can be reached and written, then start the query again.",
    "unknown" -> "Whether the write took effect is not known; starting the query again finds out.",
    "conflict" -> "Make sure that no second query uses the same checkpoint location.",
    "busy" -> "Start the query again.",
    "internal" -> "The executor's log has the details.")

  private def describe(kind: String, text: String, file: Option[String], option: Option[String]): String = {
    val named = file.filterNot(text.contains).map(f => s" (file: $f)").getOrElse("") +
      option.filterNot(text.contains).map(o => s" (option: $o)").getOrElse("")
    val isLocalDisk = kind == "storage" && option.contains(LocalDisks.Option)
    val remedy = if (isLocalDisk) "" else advice.getOrElse(kind, "") // the text has the remedy for its cause
    val end = if (remedy.isEmpty || s"$text$named".matches("(?s).*[.!?]")) "" else "."
    s"incremental state store [$kind]: $text$named$end $remedy".trim
  }
}
