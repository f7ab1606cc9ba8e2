package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.api.python.ChainedPythonFunctions
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.python.ArrowPythonRunner
import org.apache.spark.sql.types.StructType

/**
 * Spark's Arrow runner, which handles input and output in the task's own thread, because a state store belongs to one
 * thread. Spark 4.0 has no other way.
 */
abstract class SerialArrowRunner(
    functions: Seq[(ChainedPythonFunctions, Long)],
    evalType: Int,
    schema: StructType,
    settings: WorkerSettings,
    metrics: Map[String, SQLMetric])
    extends ArrowPythonRunner(
      functions, evalType, Array(Array(0)), schema, settings.timeZoneId, settings.largeVarTypes,
      settings.runnerConf, metrics, settings.jobArtifactUUID, profiler = None)
