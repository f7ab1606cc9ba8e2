package org.apache.spark.sql.execution.streaming.state.incremental.vectorized

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.catalyst.InternalRow

/**
 * One group of a pass.
 *
 * @param key the grouping columns; the group owns it
 * @param rows the group's rows, to be drained before the next group is asked for; empty when it timed out
 * @param state the state row, where the pass has met it on its way; `None`: to be read from the store
 */
private[vectorized] case class Group(key: UnsafeRow, rows: Iterator[InternalRow], state: Option[UnsafeRow])
