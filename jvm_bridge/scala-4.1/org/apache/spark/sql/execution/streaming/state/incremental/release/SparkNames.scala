package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.execution.streaming.{checkpointing, runtime, state}
import org.apache.spark.sql.execution.streaming.operators.stateful
import org.apache.spark.sql.execution.streaming.operators.stateful.flatmapgroupswithstate.{
  FlatMapGroupsWithStateExecHelper => Helper
}

/** The classes of Spark that Spark 4.0 has in other packages, or does not have. */
object SparkNames {
  type BaseStreamingDeduplicateExec = stateful.BaseStreamingDeduplicateExec
  type CheckpointFileManager = checkpointing.CheckpointFileManager
  val CheckpointFileManager: checkpointing.CheckpointFileManager.type = checkpointing.CheckpointFileManager
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
