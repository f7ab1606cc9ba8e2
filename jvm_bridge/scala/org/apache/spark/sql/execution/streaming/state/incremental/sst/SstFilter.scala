package org.apache.spark.sql.execution.streaming.state.incremental.sst

import org.apache.spark.unsafe.Platform

/**
 * The bloom filter of RocksDB's format_version 5: cache lines of 512 bits, chosen by the low half of a key's
 * hash; the high half chooses bits in it. Last 5 bytes: -1, 0, number of probes, 0, 0.
 */
private[sst] object SstFilter {
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

/** Collects hashes of keys for a bloom filter of 10 bits a key. */
private[sst] final class SstFilterBuilder(expectedKeys: Int) {
  private var hashes = new Array[Long](math.max(16, expectedKeys))
  private var count = 0

  def add(hash: Long): Unit = {
    if (count == hashes.length) hashes = java.util.Arrays.copyOf(hashes, count * 2)
    hashes(count) = hash
    count += 1
  }

  def finish(): Array[Byte] = {
    val lines = ((count.toLong * 10000 + 511999) / 512000).toInt
    val filter = new Array[Byte](Math.toIntExact(lines.toLong * SstFilter.lineBytes + SstFilter.trailerBytes))
    var i = 0
    while (i < count) {
      SstFilter.add(hashes(i), SstFilterBuilder.probes, filter, lines)
      i += 1
    }
    filter(filter.length - 5) = -1
    filter(filter.length - 3) = SstFilterBuilder.probes
    filter
  }
}

private object SstFilterBuilder {
  private val probes: Byte = 6
}
