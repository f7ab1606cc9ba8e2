package org.apache.spark.sql.execution.streaming.state.incremental.processors

import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression}
import org.apache.spark.sql.catalyst.plans.logical.TransformWithStateInPySpark.UserFacingDataType
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo
import org.apache.spark.sql.execution.streaming.state.incremental.release.{OperatorTwin, PythonProcessorOutput}
import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.streaming.{OutputMode, TimeMode}
import org.apache.spark.sql.types.StructType

/**
 * The operator that [[BatchedProcessor]] tells, with the parameters of Spark's operator, which differ between releases:
 * these are those from Spark 4.2 on.
 */
private[processors] class BatchedProcessorExec(
    function: Expression,
    grouping: Seq[Attribute],
    out: Seq[Attribute],
    mode: OutputMode,
    time: TimeMode,
    info: Option[StatefulOperatorStateInfo],
    timestampMs: Option[Long],
    previousTimestampMs: Option[Long],
    lateWatermark: Option[Long],
    evictionWatermark: Option[Long],
    dataType: UserFacingDataType.Value,
    input: SparkPlan,
    streaming: Boolean,
    withInitialState: Boolean,
    initial: SparkPlan,
    initialGrouping: Seq[Attribute],
    initialSchema: StructType)
    extends TransformWithStateInPySparkExec(
      function, grouping, out, mode, time, info, timestampMs, previousTimestampMs, lateWatermark, evictionWatermark,
      dataType, input, streaming, withInitialState, initial, initialGrouping, initialSchema)
    with BatchedProcessor
    with OperatorTwin {

  def this(exec: TransformWithStateInPySparkExec, input: SparkPlan, initial: SparkPlan) = this(
    exec.functionExpr, exec.groupingAttributes, PythonProcessorOutput.of(exec), exec.outputMode, exec.timeMode,
    exec.stateInfo, exec.batchTimestampMs, exec.prevBatchTimestampMs, exec.eventTimeWatermarkForLateEvents,
    exec.eventTimeWatermarkForEviction, exec.userFacingDataType, input, exec.isStreaming, exec.hasInitialState,
    initial, exec.initialStateGroupingAttrs, exec.initialStateSchema)

  /** Skips Spark's check, which lets no store but its own RocksDB store pass, for this project's store. */
  override def validateStateStoreProvider(isStreaming: Boolean): Unit =
    if (!ReplacedOperator.isOurStore(conf)) super.validateStateStoreProvider(isStreaming)

  override protected def setMetricsOf(store: StateStore): Unit = setStoreMetrics(store, isStreaming)

  override protected def withNewChildrenInternal(
      newLeft: SparkPlan, newRight: SparkPlan): TransformWithStateInPySparkExec =
    new BatchedProcessorExec(this, newLeft, newRight)
}

private[processors] object BatchedProcessorExec {

  /** Returns the batched twin of one of Spark's operators. */
  def apply(exec: TransformWithStateInPySparkExec): SparkPlan = {
    val twin = new BatchedProcessorExec(exec, exec.child, exec.initialState)
    twin.copyTagsFrom(exec)
    twin
  }
}
