package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.SparkException
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.errors.QueryExecutionErrors
import org.apache.spark.sql.execution.streaming.state.{StateStoreConf, StateStoreId, StateStoreProvider}
import org.apache.spark.sql.execution.streaming.state.incremental.release.SparkNames.ConvertableToCannotLoadStoreError
import org.apache.spark.sql.types.StructType

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
