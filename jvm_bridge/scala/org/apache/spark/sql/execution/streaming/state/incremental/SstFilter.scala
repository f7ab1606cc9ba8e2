package org.apache.spark.sql.execution.streaming.state.incremental

import org.apache.spark.unsafe.Platform

/**
 * The bloom filter of RocksDB's format_version 5: cache lines of 512 bits, chosen by the low half of a key's
 * hash; the high half chooses bits in it. Last 5 bytes: -1, 0, number of probes, 0, 0.
 */
private[incremental] object SstFilter {
  val lineBytes = 64
  val trailerBytes = 5
  private val next = 0x9e3779b9

  def line(hash: Long, lines: Int): Int = (((hash & 0xffffffffL) * lines) >>> 32).toInt

  def add(hash: Long, probes: Int, bits: Array[Byte], lines: Int): Unit = {
    val at = line(hash, lines) * lineBytes
    var h = (hash >>> 32).toInt
    var i = 0
    while (i < probes) {
      val bit = h >>> 23
      bits(at + (bit >> 3)) = (bits(at + (bit >> 3)) | (1 << (bit & 7))).toByte
      h *= next
      i += 1
    }
  }

  /** Whether a key with that hash may be in the file. */
  def mayContain(hash: Long, probes: Int, filter: Long, lines: Int): Boolean = {
    val at = filter + line(hash, lines).toLong * lineBytes
    var h = (hash >>> 32).toInt
    var i = 0
    while (i < probes) {
      val bit = h >>> 23
      if ((Platform.getByte(null, at + (bit >> 3)) & (1 << (bit & 7))) == 0) return false
      h *= next
      i += 1
    }
    true
  }
}
