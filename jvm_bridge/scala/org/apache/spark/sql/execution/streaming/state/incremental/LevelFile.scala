package org.apache.spark.sql.execution.streaming.state.incremental

/**
 * A table of a RocksDB directory and the range of its keys, both ends included.
 *
 * @param newest largest sequence number in it
 */
private[incremental] final case class LevelFile(
    table: SstTable,
    level: Int,
    smallest: Array[Byte],
    largest: Array[Byte],
    newest: Long) {

  def mayHold(key: Array[Byte]): Boolean =
    java.util.Arrays.compareUnsigned(key, smallest) >= 0 && java.util.Arrays.compareUnsigned(key, largest) <= 0

  /** Whether it may hold a key with from <= key < until (null: no end). */
  def overlaps(from: Array[Byte], until: Array[Byte]): Boolean =
    java.util.Arrays.compareUnsigned(from, largest) <= 0 &&
      (until == null || java.util.Arrays.compareUnsigned(until, smallest) > 0)
}
