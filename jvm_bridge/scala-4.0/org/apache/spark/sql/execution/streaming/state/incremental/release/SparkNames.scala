package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.SparkException
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.errors.QueryExecutionErrors
import org.apache.spark.sql.execution.streaming
import org.apache.spark.sql.execution.streaming.StreamingSymmetricHashJoinHelper.{LeftSide, RightSide}
import org.apache.spark.sql.execution.streaming.state.{
  StateStoreConf, StateStoreId, StateStoreProvider, SymmetricHashJoinStateManager
}
import org.apache.spark.sql.execution.streaming.state.incremental.release.SparkNames.{
  ConvertableToCannotLoadStoreError, StateStoreWriter, StreamingSymmetricHashJoinExec
}
import org.apache.spark.sql.types.StructType

/** The classes of Spark that later releases have in other packages, or that only they have. */
object SparkNames {
  type BaseStreamingDeduplicateExec = streaming.BaseStreamingDeduplicateExec
  type CheckpointFileManager = streaming.CheckpointFileManager
  val CheckpointFileManager: streaming.CheckpointFileManager.type = streaming.CheckpointFileManager
  type FileContextBasedCheckpointFileManager = streaming.FileContextBasedCheckpointFileManager
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

/** The names of the stores that an operator has in each partition. */
object StoreNames {
  def of(operator: StateStoreWriter): Seq[String] = operator match {
    case _: StreamingSymmetricHashJoinExec => SymmetricHashJoinStateManager.allStateStoreNames(LeftSide, RightSide)
    case _ => Seq(StateStoreId.DEFAULT_STORE_NAME)
  }
}

/** Errors of a store in Spark's words. */
object StoreErrors {
  /** Returns the error with which Spark's own stores say that a version cannot be loaded. */
  def cannotLoadStore(cause: Throwable): Throwable = cause match {
    case e: SparkException if Option(e.getCondition).exists(_.contains("CANNOT_LOAD_STATE_STORE")) => e
    case e: ConvertableToCannotLoadStoreError => e.convertToCannotLoadStoreError()
    case e => QueryExecutionErrors.cannotLoadStore(e)
  }

  /** Throws an error if the rows do not have the schemas. */
  def checkRowFormat(
      key: UnsafeRow,
      keys: StructType,
      value: UnsafeRow,
      values: StructType,
      id: StateStoreId,
      conf: StateStoreConf): Unit =
    StateStoreProvider.validateStateRowFormat(key, keys, value, values, conf)
}
