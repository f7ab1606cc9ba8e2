package org.apache.spark.sql.execution.streaming.state.incremental.vectorized

import org.apache.arrow.vector.VectorSchemaRoot

import org.apache.spark.TaskContext
import org.apache.spark.sql.Row
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.GroupedIterator
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.execution.streaming.state.incremental.processors.UncompressedArrowRunner
import org.apache.spark.sql.execution.streaming.state.incremental.release.ArrowTypes
import org.apache.spark.sql.execution.streaming.state.incremental.release.SparkNames.StateManager

/**
 * A function's pass over the groups of one partition: first over those that have rows, then over those that timed out.
 *
 * Each pass is a stream to a Python worker and back; a pass without groups starts no worker. The returned iterators
 * work when they are drained, on the task's thread alone, which is the only thread that uses the store.
 */
private[vectorized] class GroupsPartition(
    call: GroupsCall,
    store: StateStore,
    stateManager: StateManager,
    stateEncoder: ExpressionEncoder[Any],
    metrics: GroupMetrics) {

  ArrowTypes.failDuplicatedFieldNames(call.rowType)

  private lazy val encoder = stateEncoder.asInstanceOf[ExpressionEncoder[Row]]
  private lazy val states = new StateReader(store)

  /** Calls the function for the groups of `rows`, which are sorted by the grouping columns. */
  def withRows(rows: Iterator[InternalRow]): Iterator[InternalRow] = {
    val groups = GroupedIterator(rows, call.groupingAttributes, call.rowAttributes).map {
      case (key, groupRows) => Group(key.asInstanceOf[UnsafeRow].copy(), groupRows, None)
    }
    run(groups, timedOut = false)
  }

  /** Calls the function for the groups whose stored timeout has passed. */
  def timedOut(): Iterator[InternalRow] = {
    val threshold = call.timeoutThresholdMs
    val groups = store.iterator().filter { pair =>
      val timeout = pair.value.getLong(StateReader.TimeoutOrdinal)
      timeout != GroupsCall.NoTimestamp && timeout < threshold
    }.map(pair => Group(pair.key.copy(), Iterator.empty, Some(pair.value.copy())))
    run(groups, timedOut = true)
  }

  private def run(groups: Iterator[Group], timedOut: Boolean): Iterator[InternalRow] =
    if (!groups.hasNext) Iterator.empty
    else {
      val context = TaskContext.get()
      val pending = new PendingKeys
      val source = new GroupSource(call, groups, states, pending, encoder)
      val changes = new StateChanges(call, store, stateManager, encoder, pending, metrics)
      new GroupsRunner(call, source, call.header(timedOut), metrics.python)
        .compute(Iterator.empty, context.partitionId(), context)
        .flatMap(changes.applyAndEmit)
    }
}

/** A runner that sends groups to the worker. [[StateChanges]] reads the batches that come back. */
private[vectorized] class GroupsRunner(call: GroupsCall, source: GroupSource, header: String,
    metrics: Map[String, SQLMetric])
    extends UncompressedArrowRunner(
      call.function, call.inputType, call.timeZoneId, call.largeVarTypes, call.runnerConf, metrics,
      call.jobArtifactUUID) {

  private var batch: GroupBatch = _

  override protected def hasBatch: Boolean = source.hasNext

  override protected def fill(root: VectorSchemaRoot): Unit = {
    if (batch == null) batch = new GroupBatch(root, header)
    source.fill(batch)
    batch.finish()
  }

  override protected def reset(): Unit = batch.reset()
}

/** The metrics that a partition of the operator counts; `python` are the worker's, by Spark's names. */
private[vectorized] case class GroupMetrics(
    outputRows: SQLMetric,
    updatedStates: SQLMetric,
    removedStates: SQLMetric,
    python: Map[String, SQLMetric])
