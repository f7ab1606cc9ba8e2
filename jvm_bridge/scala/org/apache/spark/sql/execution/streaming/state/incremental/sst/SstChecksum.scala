package org.apache.spark.sql.execution.streaming.state.incremental.sst

import org.apache.spark.sql.execution.streaming.state.incremental.memory.OffHeap

import java.util.zip.CRC32C

/**
 * The masked CRC-32C that ends each block: over the content and the byte after it, its kind of compression. Any number
 * of threads.
 */
private[sst] object SstChecksum {

  /** Returns whether the footer of a file names this checksum. */
  def is(number: Byte): Boolean = number == SstFormat.crc32c

  /**
   * Returns whether a block holds what was written.
   *
   * @param from index in `bytes` at which the block begins
   * @param contentBytes bytes of its content, the trailer not counted
   */
  def holds(bytes: Array[Byte], from: Int, contentBytes: Int): Boolean = {
    val crc = new CRC32C
    crc.update(bytes, from, contentBytes + 1)
    SstFormat.masked(crc.getValue.toInt) ==
      OffHeap.getInt(bytes, OffHeap.arrayBase.toLong + from + contentBytes + 1)
  }
}
