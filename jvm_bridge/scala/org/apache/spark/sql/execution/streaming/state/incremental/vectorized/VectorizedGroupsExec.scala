package org.apache.spark.sql.execution.streaming.state.incremental.vectorized

import org.apache.spark.JobArtifactSet
import org.apache.spark.api.python.ChainedPythonFunctions
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression, PythonUDF}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.python.ArrowPythonRunner
import org.apache.spark.sql.execution.python.streaming.FlatMapGroupsInPandasWithStateExec
import org.apache.spark.sql.execution.streaming.state.incremental.processors.ReplacedOperator
import org.apache.spark.sql.execution.streaming.state.incremental.release.OperatorTwin
import org.apache.spark.sql.execution.streaming.state.incremental.release.SparkNames.{
  StateData, StatefulOperatorStateInfo
}
import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.streaming.{GroupStateTimeout, OutputMode}
import org.apache.spark.sql.types.StructType

/**
 * Spark's operator of `applyInPandasWithState`, except for the way in which the rows of a partition meet their states.
 *
 * Distribution, ordering, late rows, watermarks, schema checks, metrics and the commit stay those of Spark's operator.
 */
class VectorizedGroupsExec(
    function: Expression,
    grouping: Seq[Attribute],
    out: Seq[Attribute],
    state: StructType,
    info: Option[StatefulOperatorStateInfo],
    formatVersion: Int,
    mode: OutputMode,
    timeout: GroupStateTimeout,
    timestampMs: Option[Long],
    lateWatermark: Option[Long],
    evictionWatermark: Option[Long],
    skipInitial: Boolean,
    input: SparkPlan)
    extends FlatMapGroupsInPandasWithStateExec(
      function, grouping, out, state, info, formatVersion, mode, timeout, timestampMs, lateWatermark,
      evictionWatermark, skipInitial, input)
    with OperatorTwin
    with ReplacedOperator {

  private val udf = functionExpr.asInstanceOf[PythonUDF]
  private val options = VectorizedOptions(conf)

  /** The call that the tasks get, made of the session's settings here, on the driver. */
  private val call = GroupsCall(
    function = Seq((ChainedPythonFunctions(Seq(udf.func)), udf.resultId.id)),
    mode = GroupsMode.of(udf.name).get,
    groupingAttributes = groupingAttributes,
    rowAttributes = child.output.map(_.withNullability(true)),
    stateType = stateType,
    outAttributes = outAttributes,
    timeoutConf = timeoutConf,
    batchTimestampMs = batchTimestampMs,
    watermarkMs = eventTimeWatermarkForEviction,
    watermarkPresent = watermarkPresent,
    timeZoneId = conf.sessionLocalTimeZone,
    largeVarTypes = conf.arrowUseLargeVarTypes,
    maxRecordsPerBatch = if (conf.arrowMaxRecordsPerBatch > 0) conf.arrowMaxRecordsPerBatch else Int.MaxValue,
    maxBatchBytes = options.maxBatchBytes,
    maxGroupBytes = options.maxGroupBytes,
    runnerConf = ArrowPythonRunner.getPythonRunnerConfMap(conf),
    jobArtifactUUID = JobArtifactSet.getCurrentJobArtifactState.map(_.uuid))

  override def nodeName: String = "VectorizedFlatMapGroupsInPandasWithState"

  override protected def withNewChildInternal(newChild: SparkPlan): FlatMapGroupsInPandasWithStateExec =
    new VectorizedGroupsExec(functionExpr, groupingAttributes, outAttributes, stateType, stateInfo,
      stateFormatVersion, outputMode, timeoutConf, batchTimestampMs, eventTimeWatermarkForLateEvents,
      eventTimeWatermarkForEviction, skipEmittingInitialStateKeys, newChild)

  override def createInputProcessor(store: StateStore): InputProcessor = new InputProcessor(store) {
    countReplaced()
    private val partition = new GroupsPartition(call, store, stateManager, stateEncoder,
      GroupMetrics(numOutputRows, numUpdatedStateRows, numRemovedStateRows, pythonMetrics))

    override def processNewData(rows: Iterator[InternalRow]): Iterator[InternalRow] = partition.withRows(rows)

    override def processTimedOutState(): Iterator[InternalRow] =
      if (isTimeoutEnabled) partition.timedOut() else Iterator.empty

    override protected def callFunctionAndUpdateState(
        stateData: StateData,
        valueRows: Iterator[InternalRow],
        hasTimedOut: Boolean): Iterator[InternalRow] =
      throw new UnsupportedOperationException("groups are called many at a time")
  }
}

object VectorizedGroupsExec {
  /** Returns the vectorised twin of Spark's operator, which calls the marked function `udf`. */
  def apply(exec: FlatMapGroupsInPandasWithStateExec, udf: PythonUDF): VectorizedGroupsExec = {
    val twin = new VectorizedGroupsExec(udf, exec.groupingAttributes, exec.outAttributes, exec.stateType,
      exec.stateInfo, exec.stateFormatVersion, exec.outputMode, exec.timeoutConf, exec.batchTimestampMs,
      exec.eventTimeWatermarkForLateEvents, exec.eventTimeWatermarkForEviction,
      exec.skipEmittingInitialStateKeys, exec.child)
    twin.copyTagsFrom(exec)
    twin
  }
}
