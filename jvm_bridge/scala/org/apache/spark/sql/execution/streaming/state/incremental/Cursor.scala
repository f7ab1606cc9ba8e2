package org.apache.spark.sql.execution.streaming.state.incremental

/**
 * Goes through rows in key order. Key and value lie outside the heap and stay until the next move. Begins on
 * the first row, if there is one.
 */
private[incremental] abstract class Cursor {
  def valid: Boolean
  def keyAddress: Long
  def keyLength: Int
  def valueAddress: Long

  /** [[Record.removed]] for a removed key, where the source tells of those. */
  def valueLength: Int

  def next(): Unit
  def close(): Unit
}
