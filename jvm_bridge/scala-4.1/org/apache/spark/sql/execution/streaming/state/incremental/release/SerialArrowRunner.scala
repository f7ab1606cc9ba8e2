package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.SparkEnv
import org.apache.spark.api.python.ChainedPythonFunctions
import org.apache.spark.internal.config.Python
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.python.ArrowPythonRunner
import org.apache.spark.sql.types.StructType

/**
 * Spark's Arrow runner, which handles input and output in the task's own thread, to which a state store and the
 * operator's notes on groups belong. Spark 4.1 has no other way, so there is nothing to switch off.
 */
abstract class SerialArrowRunner(
    functions: Seq[(ChainedPythonFunctions, Long)],
    evalType: Int,
    schema: StructType,
    settings: WorkerSettings,
    metrics: Map[String, SQLMetric])
    extends ArrowPythonRunner(
      functions, evalType, Array(Array(0)), schema, settings.timeZoneId, settings.largeVarTypes,
      settings.runnerConf, metrics, settings.jobArtifactUUID, sessionUUID = None, profiler = None)

/** The settings that Spark's runner of processors takes from the application, or does without, and not from the session. */
trait AsTheApplicationSays extends SerialArrowRunner {
  override val idleTimeoutSeconds: Long = SparkEnv.get.conf.get(Python.PYTHON_WORKER_IDLE_TIMEOUT_SECONDS)
  override val killOnIdleTimeout: Boolean = SparkEnv.get.conf.get(Python.PYTHON_WORKER_KILL_ON_IDLE_TIMEOUT)
  override val tracebackDumpIntervalSeconds: Long =
    SparkEnv.get.conf.get(Python.PYTHON_WORKER_TRACEBACK_DUMP_INTERVAL_SECONDS)
  override val killWorkerOnFlushFailure: Boolean =
    SparkEnv.get.conf.get(Python.PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE)
  override val faultHandlerEnabled: Boolean = SparkEnv.get.conf.get(Python.PYTHON_WORKER_FAULTHANLDER_ENABLED)
  override val hideTraceback: Boolean = false
  override val simplifiedTraceback: Boolean = false
}
