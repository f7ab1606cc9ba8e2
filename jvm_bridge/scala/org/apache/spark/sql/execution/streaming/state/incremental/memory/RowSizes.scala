package org.apache.spark.sql.execution.streaming.state.incremental.memory

import org.apache.spark.sql.execution.streaming.state.StateStoreErrors

/**
 * How large rows may be. A reader has a block of a file in one array, and a buffer for keys that grows; so what a store
 * takes is bounded by what can be read, and lengths that are added or doubled stay within an Int.
 */
private[incremental] object RowSizes {

  /** Bytes of a key, its column family counted. The end of a file holds the last key up to three times. */
  val mostKeyBytes: Int = 256 << 20

  /** Bytes of a key with its value; the rest of an array is for what a block has beside the row. */
  val mostBytes: Int = Int.MaxValue - (1 << 20)

  /** The longest array that every JVM has. */
  private val mostArrayBytes = Int.MaxValue - 16

  /** Returns whether a row of that key and that value can be read. */
  def canBeRead(keyBytes: Long, valueBytes: Long): Boolean =
    keyBytes <= mostKeyBytes && keyBytes + valueBytes <= mostBytes

  /**
   * Refuses a row that could not be read.
   *
   * @throws StateStoreUnsupportedOperationException if the key or the whole row is too long
   */
  def check(operation: String, keyBytes: Long, valueBytes: Long): Unit =
    if (!canBeRead(keyBytes, valueBytes)) {
      throw StateStoreErrors.unsupportedOperationException(operation, s"a key of $keyBytes bytes and a value of " +
        s"$valueBytes: a key of the incremental state store has at most $mostKeyBytes bytes, and a key with its value at " +
        s"most $mostBytes. Divide the row: let the key be a hash, or the values of a key be several rows")
    }

  /** Returns the length of a buffer for that many bytes that may become more: twice as long, where an array can be. */
  def doubled(bytes: Int): Int = math.max(bytes, math.min(bytes * 2L, mostArrayBytes.toLong).toInt)
}
