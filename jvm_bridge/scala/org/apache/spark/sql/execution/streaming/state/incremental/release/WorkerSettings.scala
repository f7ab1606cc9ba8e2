package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.{JobArtifactSet, SPARK_VERSION}
import org.apache.spark.sql.execution.python.ArrowPythonRunner
import org.apache.spark.sql.internal.SQLConf

/**
 * The session's settings for Python workers that get Arrow batches. They go from the driver to the tasks.
 *
 * @param maxRecords the largest number of rows in a batch
 * @param frameRecords the rows after which Spark's operators of stateful functions end a frame; 0: each row is one
 */
final case class WorkerSettings(
    timeZoneId: String,
    largeVarTypes: Boolean,
    maxRecords: Int,
    frameRecords: Int,
    runnerConf: Map[String, String],
    jobArtifactUUID: Option[String])

object WorkerSettings {
  /** Returns the settings of a session; on the driver, in the thread that plans the query. */
  def of(conf: SQLConf): WorkerSettings = WorkerSettings(
    conf.sessionLocalTimeZone,
    conf.arrowUseLargeVarTypes,
    if (conf.arrowMaxRecordsPerBatch > 0) conf.arrowMaxRecordsPerBatch else Int.MaxValue,
    if (conf.arrowMaxRecordsPerBatch > 0) conf.arrowMaxRecordsPerBatch else withoutLimit,
    ArrowPythonRunner.getPythonRunnerConfMap(conf),
    JobArtifactSet.getCurrentJobArtifactState.map(_.uuid))

  /** Until Spark 4.1 these operators take an option of 0, which means "no limit", as a limit that is always reached. */
  private def withoutLimit: Int = if (Seq("4.0.", "4.1.").exists(SPARK_VERSION.startsWith)) 0 else Int.MaxValue
}
