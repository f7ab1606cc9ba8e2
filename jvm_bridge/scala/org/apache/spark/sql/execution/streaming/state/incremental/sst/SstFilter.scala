package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.io.File

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{OffHeap, Slots, StoreMemory}

/**
 * The bloom filter of RocksDB's format_version 5: cache lines of 512 bits, chosen by the low half of a key's
 * hash; the high half chooses bits in it. Last 5 bytes: -1, 0, number of probes, 0, 0.
 */
private[sst] final class SstFilter private (start: Long, lines: Int, probes: Int) {

  /** Whether a key with that hash may be in the file. */
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

  /** Any key may be in the file. */
  val none = new SstFilter(0, 0, 0)

  /** The filter in a block; [[none]] when it is of another kind. */
  def in(start: Long, bytes: Int): SstFilter = {
    val end = start + bytes
    val lines = (bytes - trailerBytes) / lineBytes
    if (lines > 0 && OffHeap.getByte(null, end - 5) == -1 && OffHeap.getByte(null, end - 4) == 0) {
      new SstFilter(start, lines, OffHeap.getByte(null, end - 3) & 31)
    } else none
  }
}

/**
 * Builds a bloom filter of 10 bits a key outside the heap; of fewer bits where a block of a file could not hold as many.
 * To be freed.
 */
private[sst] final class SstFilterBuilder(keys: Long, memory: StoreMemory, spillDirectory: File) {
  import SstFilterBuilder._

  private val filter =
    Slots.zeros(math.min(mostLines, (keys * 10000 + 511999) / 512000), SstFilter.lineShift, memory, spillDirectory)

  /** Hashes of keys that are added at once: their cache lines are waited for at the same time. */
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

  /** Puts it. */
  def finish(out: SstBlockWriter): Unit = {
    addWaiting()
    for (i <- 0 until filter.pieceCount) out.putBytes(null, filter.pieceStart(i), filter.pieceEnd(i) - filter.pieceStart(i))
    out.putArray(Array[Byte](-1, 0, probes, 0, 0))
  }

  def free(): Unit = filter.free()
}

private object SstFilterBuilder {
  private val probes: Byte = 6
  private val atOnce = 256
  private val mostLines = (Int.MaxValue - 64L) / SstFilter.lineBytes
}
