package org.apache.spark.sql.execution.streaming.state.incremental.vectorized

import java.util.ArrayDeque

import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/**
 * The keys of groups that were sent to the worker and have not come back. Groups are numbered from 0 in the
 * order in which they were sent, and come back in that order, so the numbers stand for the keys in the
 * stream.
 */
private[vectorized] class PendingKeys {
  private val keys = new ArrayDeque[UnsafeRow]
  private var first = 0L

  def add(key: UnsafeRow): Unit = keys.addLast(key)

  /** The key of group `number`; groups before it are done and forgotten. */
  def advanceTo(number: Long): UnsafeRow = {
    forgetBefore(number)
    keys.peekFirst()
  }

  /** Forgets the groups numbered below `number`. */
  def forgetBefore(number: Long): Unit = while (first < number) {
    keys.removeFirst()
    first += 1
  }
}
