package org.apache.spark.sql.execution.streaming.state.incremental.release

import java.util.UUID

import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder
import org.apache.spark.sql.catalyst.plans.logical.TransformWithStateInPySpark.UserFacingDataType
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.{
  ImplicitGroupingKeyTracker, StatefulProcessorHandleImpl, StatefulProcessorHandleState
}
import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.internal.SQLConf

/** Spark's handle of a processor's state, which differs between releases, and the operator that makes it. */
object ProcessorHandles {
  type Handle = StatefulProcessorHandleImpl
  type PythonProcessorExec = TransformWithStateInPySparkExec

  def make(
      exec: PythonProcessorExec,
      store: StateStore,
      runId: UUID,
      keys: ExpressionEncoder[Any],
      metrics: Map[String, SQLMetric]): Handle =
    new StatefulProcessorHandleImpl(
      store, runId, keys, exec.timeMode, exec.isStreaming, exec.batchTimestampMs, exec.prevBatchTimestampMs, metrics)

  /** The reason why no processor of this release can be batched, if there is one. */
  val obstacle: Option[String] = None

  /** Returns true if the user's processor takes rows, and no frames of pandas. */
  def takesRows(exec: PythonProcessorExec): Boolean = exec.userFacingDataType != UserFacingDataType.PANDAS

  def maxBytesPerBatch(conf: SQLConf): Long = conf.arrowMaxBytesPerBatch

  def maxStateRecords(conf: SQLConf): Int = conf.arrowTransformWithStateInPySparkMaxStateRecordsPerBatch

  /** Sets the state of the handle by its name. */
  def setState(handle: Handle, name: String): Unit =
    handle.setHandleState(StatefulProcessorHandleState.withName(name))

  def isClosed(handle: Handle): Boolean = handle.getHandleState == StatefulProcessorHandleState.CLOSED

  /** Sets the grouping key of this thread's calls on state. */
  def setKey(key: Any): Unit = ImplicitGroupingKeyTracker.setImplicitKey(key)

  def forgetKey(): Unit = ImplicitGroupingKeyTracker.removeImplicitKey()
}
