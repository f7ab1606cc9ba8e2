package org.apache.spark.sql.execution.streaming.state.incremental.vectorized

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.incremental.release.Lookups
import org.apache.spark.sql.execution.streaming.state.StateStore

/**
 * Reads states in runs: one `multiGet` for the keys of many groups where the store has it, single gets where
 * it has not.
 */
private[vectorized] class StateReader(store: StateStore) {
  private var hasMultiGet = true

  /** The state rows of `keys`, in their order, null without state; each valid until the next is asked for. */
  def read(keys: Array[UnsafeRow]): Iterator[UnsafeRow] =
    if (hasMultiGet && keys.length > 1) multiGet(keys) else keys.iterator.map(key => store.get(key))

  private def multiGet(keys: Array[UnsafeRow]): Iterator[UnsafeRow] =
    try Lookups.multiGet(store, keys)
    catch {
      case _: UnsupportedOperationException =>
        hasMultiGet = false
        read(keys)
    }
}

private[vectorized] object StateReader {
  /** Where a state row of format 2 keeps the user's state (a nullable struct) and the timeout (ms, or -1). */
  val StateOrdinal = 0
  val TimeoutOrdinal = 1
}
