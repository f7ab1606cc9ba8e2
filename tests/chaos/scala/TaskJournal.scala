package statestore.chaos

import java.io.{FileOutputStream, OutputStreamWriter}
import java.nio.charset.StandardCharsets.UTF_8

import org.apache.spark.{ExceptionFailure, SparkConf, Success, TaskFailedReason}
import org.apache.spark.scheduler.{SparkListener, SparkListenerTaskEnd}

/** Appends a line for each task that ended to the file that `spark.chaos.journal` names: how, and why. */
class TaskJournal(conf: SparkConf) extends SparkListener {
  private val out =
    new OutputStreamWriter(new FileOutputStream(conf.get("spark.chaos.journal"), true), UTF_8)

  override def onTaskEnd(end: SparkListenerTaskEnd): Unit = {
    val speculative = if (end.taskInfo != null && end.taskInfo.speculative) "speculative" else "first"
    val (kind, why) = end.reason match {
      case Success => ("Success", "")
      case failure: ExceptionFailure => (failure.className, s"${failure.description} ${causes(failure)}")
      case failed: TaskFailedReason => (failed.getClass.getSimpleName, failed.toErrorString)
      case other => (other.toString, "")
    }
    out.write(s"$speculative\t$kind\t${why.take(2000).replaceAll("\\s+", " ")}\n")
    out.flush()
  }

  private def causes(failure: ExceptionFailure): String =
    failure.fullStackTrace.linesIterator.filter(_.startsWith("Caused by: ")).mkString(" ")
}
