package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.StateStore

/** What Spark 4.0 asks of a store, and what later releases ask for as well: here nothing calls that. */
trait SparkStateStore extends StateStore with LaterCalls {
  def release(): Unit

  def putList(key: UnsafeRow, values: Array[UnsafeRow], colFamilyName: String): Unit

  def mergeList(key: UnsafeRow, values: Array[UnsafeRow], colFamilyName: String): Unit
}
