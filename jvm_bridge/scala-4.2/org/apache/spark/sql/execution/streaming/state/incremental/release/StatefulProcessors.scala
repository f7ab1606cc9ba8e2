package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression}
import org.apache.spark.sql.catalyst.plans.logical.TransformWithStateInPySpark.UserFacingDataType
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec
import org.apache.spark.sql.streaming.{OutputMode, TimeMode}
import org.apache.spark.sql.types.StructType

/**
 * Spark's operators of `transformWithState`, which since 4.2 refuse every store but Spark's own RocksDB store. In batch
 * queries they make a store of their own and refuse none.
 */
object StatefulProcessors {
  /** Returns an operator in place of another one, which runs on any store; None if the operator can stay as it is. */
  def onAnyStore(plan: SparkPlan): Option[SparkPlan] = plan match {
    case _: AnyStoreProcessorExec | _: AnyStorePythonProcessorExec => None
    case exec: TransformWithStateExec if exec.isStreaming => Some(tagged(exec, new AnyStoreProcessorExec(exec)))
    case exec: TransformWithStateInPySparkExec if exec.isStreaming =>
      Some(tagged(exec, new AnyStorePythonProcessorExec(exec)))
    case _ => None
  }

  private def tagged(from: SparkPlan, to: SparkPlan): SparkPlan = {
    to.copyTagsFrom(from)
    to
  }
}

/**
 * Spark's operator of `transformWithState` and `transformWithStateInPandas` in Python without its check of the store's
 * class; otherwise like [[AnyStoreProcessorExec]].
 */
class AnyStorePythonProcessorExec(
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
    with OperatorTwin {

  def this(exec: TransformWithStateInPySparkExec) = this(
    exec.functionExpr, exec.groupingAttributes, PythonProcessorOutput.of(exec), exec.outputMode, exec.timeMode,
    exec.stateInfo, exec.batchTimestampMs, exec.prevBatchTimestampMs, exec.eventTimeWatermarkForLateEvents,
    exec.eventTimeWatermarkForEviction, exec.userFacingDataType, exec.child, exec.isStreaming, exec.hasInitialState,
    exec.initialState, exec.initialStateGroupingAttrs, exec.initialStateSchema)

  override def validateStateStoreProvider(isStreaming: Boolean): Unit = ()

  override def nodeName: String = "TransformWithStateInPySpark"

  override protected def withNewChildrenInternal(
      newLeft: SparkPlan, newRight: SparkPlan): TransformWithStateInPySparkExec =
    new AnyStorePythonProcessorExec(super.withNewChildrenInternal(newLeft, newRight))
}
