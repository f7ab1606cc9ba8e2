package org.apache.spark.sql.execution.streaming.state.incremental

/**
 * Rows of a scan. Starts before the first row; [[key]] and [[value]] are those of the row that the last
 * [[advance]] moved to, in arrays that the caller may keep. Used by the transaction's thread; ends with it. A scan
 * shows the rows as they were when it began, whatever the transaction changes meanwhile.
 */
abstract class EntryIterator extends AutoCloseable {
  def advance(): Boolean
  def key: Array[Byte]
  def value: Array[Byte]
  def close(): Unit
}
