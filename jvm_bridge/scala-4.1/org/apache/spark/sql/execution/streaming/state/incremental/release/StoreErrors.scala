package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.{
  StateStoreConf, StateStoreErrors, StateStoreId, StateStoreProvider
}
import org.apache.spark.sql.types.StructType

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
