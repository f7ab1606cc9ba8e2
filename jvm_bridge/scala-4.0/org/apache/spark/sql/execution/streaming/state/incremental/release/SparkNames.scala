package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.SparkException
import org.apache.spark.sql.execution.streaming

/** The classes of Spark that later releases have in other packages, or that only they have. */
object SparkNames {
  type BaseStreamingDeduplicateExec = streaming.BaseStreamingDeduplicateExec
  type CheckpointFileManager = streaming.CheckpointFileManager
  val CheckpointFileManager: streaming.CheckpointFileManager.type = streaming.CheckpointFileManager
  type FileSystemBasedCheckpointFileManager = streaming.FileSystemBasedCheckpointFileManager
  type FlatMapGroupsWithStateExec = streaming.FlatMapGroupsWithStateExec
  val OffsetSeqMetadata: streaming.OffsetSeqMetadata.type = streaming.OffsetSeqMetadata
  type StateData = streaming.state.FlatMapGroupsWithStateExecHelper.StateData
  type StateManager = streaming.state.FlatMapGroupsWithStateExecHelper.StateManager
  type StateStoreRestoreExec = streaming.StateStoreRestoreExec
  type StreamingSymmetricHashJoinExec = streaming.StreamingSymmetricHashJoinExec
  type StatefulOperatorStateInfo = streaming.StatefulOperatorStateInfo
  type StateStoreWriter = streaming.StateStoreWriter
  type StatefulOperatorCustomMetric = streaming.StatefulOperatorCustomMetric
  type StatefulOperatorCustomSumMetric = streaming.StatefulOperatorCustomSumMetric
  type StreamExecution = streaming.StreamExecution
  type StreamingQueryWrapper = streaming.StreamingQueryWrapper

  /** An error that can be turned into Spark's own error with the same meaning. */
  trait ConvertableToCannotLoadStoreError {
    def convertToCannotLoadStoreError(): SparkException
  }
}
