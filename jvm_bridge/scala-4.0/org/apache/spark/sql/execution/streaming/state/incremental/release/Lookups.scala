package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.StateStore

/** Look-ups of many keys at once: before Spark 4.2 only this project's stores have them. */
object Lookups {
  /** @throws java.lang.UnsupportedOperationException where the store has single look-ups alone */
  def multiGet(store: StateStore, keys: Array[UnsafeRow]): Iterator[UnsafeRow] = store match {
    case own: SparkStateStore => own.multiGet(keys, StateStore.DEFAULT_COL_FAMILY_NAME)
    case _ => throw new UnsupportedOperationException("multiGet")
  }
}
