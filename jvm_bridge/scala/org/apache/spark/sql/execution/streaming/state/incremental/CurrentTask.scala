package org.apache.spark.sql.execution.streaming.state.incremental

import java.util.Locale

import scala.util.hashing.MurmurHash3

import org.apache.spark.sql.execution.streaming.state.incremental.local.TaskAttempt
import org.apache.spark.{SparkEnv, TaskContext}

/** The task of Spark that the calling thread works for. */
private[incremental] object CurrentTask {
  /** `StreamExecution.QUERY_ID_KEY`, which moves from package to package between releases. */
  private val queryIdKey = "sql.streaming.queryId"

  /** Whether it is one of a streaming query, which Spark names in its tasks, or may be one. */
  def isInQuery: Boolean = Option(TaskContext.get()).forall(_.getLocalProperty(queryIdKey) != null)

  /** Which attempt it is; None where there is no task. */
  def attempt: Option[TaskAttempt] = Option(TaskContext.get()).map { context =>
    TaskAttempt(application, context.taskAttemptId(), again = context.attemptNumber() > 0 || context.stageAttemptNumber() > 0)
  }

  /** Stands for the Spark application in the ids of attempts: 8 hexadecimal digits. */
  private def application: String = {
    val id = Option(SparkEnv.get).flatMap(_.conf.getOption("spark.app.id")).getOrElse("")
    String.format(Locale.ROOT, "%08x", Int.box(MurmurHash3.stringHash(id)))
  }
}
