package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.JobArtifactSet
import org.apache.spark.sql.execution.python.ArrowPythonRunner
import org.apache.spark.sql.internal.SQLConf

/**
 * The session's settings for Python workers that get Arrow batches. They go from the driver to the tasks.
 *
 * @param maxRecords the largest number of rows in a batch
 */
final case class WorkerSettings(
    timeZoneId: String,
    largeVarTypes: Boolean,
    maxRecords: Int,
    runnerConf: Map[String, String],
    jobArtifactUUID: Option[String])

object WorkerSettings {
  /** Returns the settings of a session; on the driver, in the thread that plans the query. */
  def of(conf: SQLConf): WorkerSettings = WorkerSettings(
    conf.sessionLocalTimeZone,
    conf.arrowUseLargeVarTypes,
    if (conf.arrowMaxRecordsPerBatch > 0) conf.arrowMaxRecordsPerBatch else Int.MaxValue,
    ArrowPythonRunner.getPythonRunnerConfMap(conf),
    JobArtifactSet.getCurrentJobArtifactState.map(_.uuid))
}
