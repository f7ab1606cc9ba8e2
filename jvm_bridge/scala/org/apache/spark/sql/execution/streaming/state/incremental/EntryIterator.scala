package org.apache.spark.sql.execution.streaming.state.incremental

/**
 * Rows of a scan. Starts before the first row; [[key]] and [[value]] are those of the row that the last
 * [[advance]] moved to, in arrays that the caller may keep, new ones at each call. Used by the transaction's
 * thread; ends with the transaction. A scan shows the rows as they were when it began, whatever the
 * transaction changes meanwhile.
 */
abstract class EntryIterator extends AutoCloseable {

  /** Moves to the next row; false when there is none, again and again. */
  def advance(): Boolean

  /** The key without the first bytes that the scan was asked to leave out. */
  def key: Array[Byte]

  def value: Array[Byte]

  /** Any number of times; an iterator that reached its end is closed. */
  def close(): Unit
}
