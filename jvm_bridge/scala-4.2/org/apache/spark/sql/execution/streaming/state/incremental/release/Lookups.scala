package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.StateStore

/** Look-ups of many keys at once. */
object Lookups {
  /** @throws java.lang.UnsupportedOperationException where the store has single look-ups alone */
  def multiGet(store: StateStore, keys: Array[UnsafeRow]): Iterator[UnsafeRow] =
    store.multiGet(keys, StateStore.DEFAULT_COL_FAMILY_NAME)
}
