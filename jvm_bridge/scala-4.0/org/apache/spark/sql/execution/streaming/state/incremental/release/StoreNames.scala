package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.execution.streaming.StreamingSymmetricHashJoinHelper.{LeftSide, RightSide}
import org.apache.spark.sql.execution.streaming.state.{StateStoreId, SymmetricHashJoinStateManager}
import org.apache.spark.sql.execution.streaming.state.incremental.release.SparkNames.{
  StateStoreWriter, StreamingSymmetricHashJoinExec
}

/** The names of the stores that an operator has in each partition. */
object StoreNames {
  def of(operator: StateStoreWriter): Seq[String] = operator match {
    case _: StreamingSymmetricHashJoinExec => SymmetricHashJoinStateManager.allStateStoreNames(LeftSide, RightSide)
    case _ => Seq(StateStoreId.DEFAULT_STORE_NAME)
  }
}
