package org.apache.spark.sql.execution.streaming.state.incremental.memory

import org.apache.spark.sql.execution.streaming.state.StateStoreErrors

/**
 * The limits of rows. A reader has a block of a file in one array, and a buffer for keys that grows: so a store takes
 * only rows that can be read, and lengths that are added or doubled stay within an Int.
 */
private[incremental] object RowSizes {

  /** Bytes of a key, its column family included. The end of a file holds the last key up to three times. */
  val mostKeyBytes: Int = 256 << 20

  /** Bytes of a key with its value; the rest of an array is for the other content of a block. */
  val mostBytes: Int = Int.MaxValue - (1 << 20)

  /** The longest array that every JVM has. */
  private val mostArrayBytes = Int.MaxValue - 16

  /** Returns true if a row of that key and that value can be read. */
  def canBeRead(keyBytes: Long, valueBytes: Long): Boolean =
    keyBytes <= mostKeyBytes && keyBytes + valueBytes <= mostBytes

  /**
   * Refuses a row that could not be read.
   *
   * @param operation the calling operation, for the message
   * @throws StateStoreUnsupportedOperationException if the key or the row is too long
   */
  def check(operation: String, keyBytes: Long, valueBytes: Long): Unit =
    if (!canBeRead(keyBytes, valueBytes)) {
      throw StateStoreErrors.unsupportedOperationException(operation,
        s"a key of $keyBytes bytes and a value of " +
          s"$valueBytes: a key of the incremental state store has at most $mostKeyBytes bytes, and a key with its value at " +
          s"most $mostBytes. Divide the row: let the key be a hash, or the values of a key be several rows")
    }

  /** Returns the length of a buffer that grows to this many bytes: twice as many, if an array can be as long. */
  def doubled(bytes: Int): Int = math.max(bytes, math.min(bytes * 2L, mostArrayBytes.toLong).toInt)
}
