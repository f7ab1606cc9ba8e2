package org.apache.spark.sql.execution.streaming.state.incremental.recent

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{ArenaWalk, OffHeap, Record, Segment, StoreMemory}

/**
 * A segment of records that the base holds too and whose generation is gone: a part of one that is too large
 * to be dropped at once, or the records that outlived others. One thread at a time.
 *
 * @param sequence its place among all that came into the index of a store, oldest first
 */
private[recent] final class EvictableSegment(
    segment: Segment,
    private var end: Long,
    private var count: Long,
    val sequence: Long) {
  def bytes: Long = segment.bytes
  def spilledBytes: Long = if (segment.spilled) segment.bytes else 0

  /** About how many records it has, overwritten ones not counted. */
  def records: Long = count

  /** Copies a record, for which room was reserved, and returns the copy. */
  def add(record: Long): Long = {
    val size = Record.size(record)
    if (end + size > segment.address + segment.bytes) {
      throw new InconsistentStateException(s"A record of $size bytes has no room in the ${segment.bytes} that were reserved")
    }
    OffHeap.copyMemory(null, record, null, end, size)
    end += size
    count += 1
    end - size
  }

  def walk: ArenaWalk = new ArenaWalk(Array(segment.address), Array(end))

  /** Whether an address lies in it. */
  def holds(address: Long): Boolean = address >= segment.address && address < end

  def free(): Unit = segment.free()
}

private[recent] object EvictableSegment {

  /** Room for records of this many bytes; none when the budget has not this many left. */
  def reserve(bytes: Long, sequence: Long, memory: StoreMemory): Option[EvictableSegment] =
    if (memory.reserve(bytes)) {
      val segment = Segment.reserved(bytes, memory)
      Some(new EvictableSegment(segment, segment.address, 0, sequence))
    } else None
}
