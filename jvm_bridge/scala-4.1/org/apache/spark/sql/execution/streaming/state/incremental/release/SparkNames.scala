package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.{checkpointing, runtime, state}
import org.apache.spark.sql.execution.streaming.operators.stateful
import org.apache.spark.sql.execution.streaming.operators.stateful.flatmapgroupswithstate.{
  FlatMapGroupsWithStateExecHelper => Helper
}
import org.apache.spark.sql.execution.streaming.state.{
  StateStoreConf, StateStoreErrors, StateStoreId, StateStoreProvider
}
import org.apache.spark.sql.execution.streaming.state.incremental.release.SparkNames.StateStoreWriter
import org.apache.spark.sql.types.StructType

/** The classes of Spark that Spark 4.0 has in other packages, or does not have. */
object SparkNames {
  type BaseStreamingDeduplicateExec = stateful.BaseStreamingDeduplicateExec
  type CheckpointFileManager = checkpointing.CheckpointFileManager
  val CheckpointFileManager: checkpointing.CheckpointFileManager.type = checkpointing.CheckpointFileManager
  type FileContextBasedCheckpointFileManager = checkpointing.FileContextBasedCheckpointFileManager
  type FileSystemBasedCheckpointFileManager = checkpointing.FileSystemBasedCheckpointFileManager
  type FlatMapGroupsWithStateExec = stateful.flatmapgroupswithstate.FlatMapGroupsWithStateExec
  val OffsetSeqMetadata: checkpointing.OffsetSeqMetadata.type = checkpointing.OffsetSeqMetadata
  type StateData = Helper.StateData
  type StateManager = Helper.StateManager
  type StateStoreRestoreExec = stateful.StateStoreRestoreExec
  type StreamingSymmetricHashJoinExec = stateful.join.StreamingSymmetricHashJoinExec
  type StatefulOperatorStateInfo = stateful.StatefulOperatorStateInfo
  type StateStoreWriter = stateful.StateStoreWriter
  type StatefulOperatorCustomMetric = stateful.StatefulOperatorCustomMetric
  type StatefulOperatorCustomSumMetric = stateful.StatefulOperatorCustomSumMetric
  type StreamExecution = runtime.StreamExecution
  type StreamingQueryWrapper = runtime.StreamingQueryWrapper
  type ConvertableToCannotLoadStoreError = state.ConvertableToCannotLoadStoreError
}

/** The names of the stores that an operator has in each partition. */
object StoreNames {
  def of(operator: StateStoreWriter): Seq[String] = operator.stateStoreNames
}

/** Errors of a store in Spark's words. */
object StoreErrors {
  /** Returns the error with which Spark's own stores say that a version cannot be loaded. */
  def cannotLoadStore(cause: Throwable): Throwable = StateStoreErrors.cannotLoadStore(cause)

  /** Throws an error if the rows do not have the schemas. */
  def checkRowFormat(
      key: UnsafeRow,
      keys: StructType,
      value: UnsafeRow,
      values: StructType,
      id: StateStoreId,
      conf: StateStoreConf): Unit =
    StateStoreProvider.validateStateRowFormat(key, keys, value, values, id, conf)
}
