package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec
import org.apache.spark.sql.streaming.{OutputMode, StatefulProcessor, TimeMode}

/** Spark's operator of `transformWithState` without its check of the store's class. */
class AnyStoreProcessorExec(
    key: Expression,
    value: Expression,
    grouping: Seq[Attribute],
    data: Seq[Attribute],
    processor: StatefulProcessor[Any, Any, Any],
    time: TimeMode,
    mode: OutputMode,
    encoder: ExpressionEncoder[Any],
    out: Attribute,
    info: Option[StatefulOperatorStateInfo],
    timestampMs: Option[Long],
    previousTimestampMs: Option[Long],
    lateWatermark: Option[Long],
    evictionWatermark: Option[Long],
    input: SparkPlan,
    streaming: Boolean,
    withInitialState: Boolean,
    initialGrouping: Seq[Attribute],
    initialData: Seq[Attribute],
    initialValue: Expression,
    initial: SparkPlan)
    extends TransformWithStateExec(
      key, value, grouping, data, processor, time, mode, encoder, out, info, timestampMs, previousTimestampMs,
      lateWatermark, evictionWatermark, input, streaming, withInitialState, initialGrouping, initialData,
      initialValue, initial)
    with OperatorTwin {

  def this(exec: TransformWithStateExec) = this(
    exec.keyDeserializer, exec.valueDeserializer, exec.groupingAttributes, exec.dataAttributes,
    exec.statefulProcessor, exec.timeMode, exec.outputMode, exec.keyEncoder, exec.outputObjAttr, exec.stateInfo,
    exec.batchTimestampMs, exec.prevBatchTimestampMs, exec.eventTimeWatermarkForLateEvents,
    exec.eventTimeWatermarkForEviction, exec.child, exec.isStreaming, exec.hasInitialState,
    exec.initialStateGroupingAttrs, exec.initialStateDataAttrs, exec.initialStateDeserializer, exec.initialState)

  override def validateStateStoreProvider(isStreaming: Boolean): Unit = ()

  override def nodeName: String = "TransformWithState"

  override protected def withNewChildrenInternal(newLeft: SparkPlan, newRight: SparkPlan): TransformWithStateExec =
    new AnyStoreProcessorExec(super.withNewChildrenInternal(newLeft, newRight))
}

/** The output columns of a processor in Python. */
object PythonProcessorOutput {
  def of(exec: TransformWithStateInPySparkExec): Seq[Attribute] = exec.output
}
