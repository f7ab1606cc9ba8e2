package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.TaskContext

/** What Spark tells of a task. */
object Tasks {
  /** Why it failed, where it has. */
  def failure(task: TaskContext): Option[Throwable] = task.getTaskFailure
}
