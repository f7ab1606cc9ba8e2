package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.SparkException
import org.apache.spark.sql.execution.streaming

/** Classes of Spark that later releases keep in other packages, or that they alone have. */
object SparkNames {
  type CheckpointFileManager = streaming.CheckpointFileManager
  val CheckpointFileManager: streaming.CheckpointFileManager.type = streaming.CheckpointFileManager
  type FileSystemBasedCheckpointFileManager = streaming.FileSystemBasedCheckpointFileManager
  type StateData = streaming.state.FlatMapGroupsWithStateExecHelper.StateData
  type StateManager = streaming.state.FlatMapGroupsWithStateExecHelper.StateManager
  type StatefulOperatorStateInfo = streaming.StatefulOperatorStateInfo
  type StateStoreWriter = streaming.StateStoreWriter
  type StreamExecution = streaming.StreamExecution
  type StreamingQueryWrapper = streaming.StreamingQueryWrapper

  /** An error that knows which of Spark's errors says the same. */
  trait ConvertableToCannotLoadStoreError {
    def convertToCannotLoadStoreError(): SparkException
  }
}
