package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.io.File

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{OffHeap, Slots, StoreMemory}

/**
 * The bloom filter of RocksDB's format_version 5. The low half of a key's hash chooses a cache line of 512 bits, the
 * high half chooses bits in the line. The last 5 bytes are -1, 0, number of probes, 0, 0.
 */
private[sst] final class SstFilter private (start: Long, lines: Int, probes: Int) {

  /** Returns false if no key of the file has that hash. */
  def mayContain(hash: Long): Boolean = lines == 0 || {
    val at = start + SstFilter.line(hash, lines).toLong * SstFilter.lineBytes
    var h = (hash >>> 32).toInt
    var i = 0
    while (i < probes) {
      val bit = h >>> 23
      if ((OffHeap.getByte(null, at + (bit >> 3)) & (1 << (bit & 7))) == 0) return false
      h *= SstFilter.next
      i += 1
    }
    true
  }
}

private[sst] object SstFilter {
  val lineShift = 6
  val lineBytes: Int = 1 << lineShift
  val trailerBytes = 5
  private val next = 0x9e3779b9

  private def line(hash: Long, lines: Int): Int = (((hash & 0xffffffffL) * lines) >>> 32).toInt

  /** Sets the bits of a hash in the cache lines of a filter. */
  def add(hash: Long, probes: Int, filter: Slots): Unit = {
    val at = filter.address(line(hash, filter.capacity.toInt))
    var h = (hash >>> 32).toInt
    var i = 0
    while (i < probes) {
      val bit = h >>> 23
      val byte = at + (bit >> 3)
      OffHeap.putByte(null, byte, (OffHeap.getByte(null, byte) | (1 << (bit & 7))).toByte)
      h *= next
      i += 1
    }
  }

  /** A filter that excludes no key. */
  val none = new SstFilter(0, 0, 0)

  /**
   * Returns the filter in a block, or [[none]] if the block has a filter of another kind.
   *
   * @param start address of the block
   */
  def in(start: Long, bytes: Int): SstFilter = {
    val end = start + bytes
    val lines = (bytes - trailerBytes) / lineBytes
    if (lines > 0 && OffHeap.getByte(null, end - 5) == -1 && OffHeap.getByte(null, end - 4) == 0) {
      new SstFilter(start, lines, OffHeap.getByte(null, end - 3) & 31)
    } else none
  }
}

/**
 * Builds a bloom filter outside the heap, of 10 bits a key, or of fewer if a block could not hold as many. The caller
 * frees it. One thread.
 *
 * @param keys number of keys that will be added
 */
private[sst] final class SstFilterBuilder(keys: Long, memory: StoreMemory, spillDirectory: File) {
  import SstFilterBuilder._

  private val filter =
    Slots.zeros(math.min(maxLines, (keys * 10000 + 511999) / 512000), SstFilter.lineShift, memory, spillDirectory)

  /** Hashes that are added at once, so that the processor waits for their cache lines at the same time. */
  private val hashes = new Array[Long](atOnce)
  private var waiting = 0

  def add(hash: Long): Unit = {
    if (waiting == atOnce) addWaiting()
    hashes(waiting) = hash
    waiting += 1
  }

  private def addWaiting(): Unit = {
    var i = 0
    while (i < waiting) {
      SstFilter.add(hashes(i), probes, filter)
      i += 1
    }
    waiting = 0
  }

  /** Puts the filter, without a trailer, into a file. Called once, after all keys. */
  def finish(out: SstBlockWriter): Unit = {
    addWaiting()
    for (i <- 0 until filter.pieceCount) out.putBytes(null, filter.pieceStart(i),
      filter.pieceEnd(i) - filter.pieceStart(i))
    out.putArray(Array[Byte](-1, 0, probes, 0, 0))
  }

  def free(): Unit = filter.free()
}

private object SstFilterBuilder {
  private val probes: Byte = 6
  private val atOnce = 256
  private val maxLines = (Int.MaxValue - 64L) / SstFilter.lineBytes
}
