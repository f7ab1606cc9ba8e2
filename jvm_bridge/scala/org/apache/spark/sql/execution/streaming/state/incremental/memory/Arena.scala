package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.io.File

/**
 * Memory for records, given out one after the other and freed all at once. Segments grow with the arena, so that small
 * batches take little; a record larger than a segment gets its own. One thread at a time.
 *
 * @param memory the budget
 * @param spillDirectory directory of files for segments that the budget has no room for
 */
private[incremental] final class Arena(memory: StoreMemory, spillDirectory: File) {
  private var segments = new Array[Segment](4)
  private var ends = new Array[Long](4)
  private var count = 0
  private var next = 0L
  private var end = 0L

  /** Bytes of all segments, and of those that lie in files. */
  var bytes = 0L
  var spilledBytes = 0L

  /**
   * Returns the address of this many bytes, with any content.
   *
   * @param size bytes, a multiple of 8
   * @throws LocalDiskException if the budget is full and the disk, too
   */
  def allocate(size: Long): Long = {
    if (end - next < size) grow(size)
    val at = next
    next += size
    at
  }

  private def grow(size: Long): Unit = {
    val growing = if (bytes < Arena.mediumSegment) bytes else math.max(Arena.mediumSegment, bytes / 4)
    val largest = math.min(Arena.largestSegment, memory.largestPieceBytes)
    val standard = math.min(largest, math.max(Arena.smallestSegment, growing)) & ~7L
    val own = size > standard
    val segment = memory.allocate(if (own) size else standard, spillDirectory)
    if (count == segments.length) {
      segments = java.util.Arrays.copyOf(segments, count * 2)
      ends = java.util.Arrays.copyOf(ends, count * 2)
    }
    if (count > 0) ends(count - 1) = next
    segments(count) = segment
    count += 1
    bytes += segment.bytes
    if (segment.spilled) spilledBytes += segment.bytes
    next = segment.address
    end = segment.address + segment.bytes
  }

  /** Passes each record that was allocated to a function, overwritten ones included, in order. */
  def foreach(use: Long => Unit): Unit = {
    val walk = new ArenaWalk(this)
    var record = walk.next()
    while (record != 0) {
      use(record)
      record = walk.next()
    }
  }

  def segmentCount: Int = count
  def segmentStart(i: Int): Long = segments(i).address
  def segmentEnd(i: Int): Long = if (i == count - 1) next else ends(i)

  /** Returns true if an address lies in the arena. */
  def holds(address: Long): Boolean = {
    var i = 0
    while (i < count) {
      if (address >= segments(i).address && address < segments(i).address + segments(i).bytes) return true
      i += 1
    }
    false
  }

  /** Returns the segments, each with the end of its records. */
  def parts: Seq[(Segment, Long)] = Seq.tabulate(count)(i => segments(i) -> segmentEnd(i))

  /** Gives the segments to the caller of [[parts]]; the arena is empty afterwards. */
  def giveAway(): Unit = forget()

  def free(): Unit = {
    var i = 0
    while (i < count) {
      segments(i).free()
      i += 1
    }
    forget()
  }

  private def forget(): Unit = {
    count = 0
    next = 0
    end = 0
    bytes = 0
    spilledBytes = 0
  }
}

private[incremental] object Arena {
  val smallestSegment: Long = 4L << 10

  /** Up to this size an arena doubles, so that a few records take little; then it grows by a quarter. */
  private val mediumSegment: Long = 64L << 10
  val largestSegment: Long = 4L << 20
}

/**
 * A walk over the records of places that no longer grow, overwritten ones included, in order. One thread.
 *
 * @param starts address at which each place begins
 * @param ends address at which the last record of each place ends
 */
private[incremental] final class ArenaWalk(starts: Array[Long], ends: Array[Long]) {
  def this(arena: Arena) =
    this(Array.tabulate(arena.segmentCount)(arena.segmentStart), Array.tabulate(arena.segmentCount)(arena.segmentEnd))

  private var segment = -1
  private var at = 0L
  private var end = 0L

  /** Fills an array with the next records. Returns their number, less than the array's length at the end. */
  def next(records: Array[Long]): Int = {
    var n = 0
    while (n < records.length && {
        records(n) = next()
        records(n) != 0
      }) n += 1
    n
  }

  /** Returns the next record, or 0 at the end. */
  def next(): Long = {
    while (at == end && segment + 1 < starts.length) {
      segment += 1
      at = starts(segment)
      end = ends(segment)
    }
    if (at == end) 0
    else {
      val record = at
      at += Record.size(record)
      record
    }
  }
}
