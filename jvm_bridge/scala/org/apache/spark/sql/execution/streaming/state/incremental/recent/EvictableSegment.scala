package org.apache.spark.sql.execution.streaming.state.incremental.recent

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{
  ArenaWalk, OffHeap, Record, Segment, StoreMemory
}

/**
 * A segment of records that the base has, too, and whose generation is gone: a part of a generation that is too large
 * to be dropped at once, or the records that outlived others. For one thread at a time.
 *
 * @param sequence its position among all that came into the index of a store, oldest first
 */
private[recent] final class EvictableSegment(
    segment: Segment,
    private var end: Long,
    private var count: Long,
    val sequence: Long) {
  def bytes: Long = segment.bytes
  def spilledBytes: Long = if (segment.spilled) segment.bytes else 0

  /** The approximate number of records, without overwritten ones. */
  def records: Long = count

  /** Copies a record, for which room was reserved, and returns the copy. */
  def add(record: Long): Long = {
    val size = Record.size(record)
    if (end + size > segment.address + segment.bytes) {
      throw new InconsistentStateException(
        s"A record of $size bytes has no room in the ${segment.bytes} that were reserved")
    }
    OffHeap.copyMemory(null, record, null, end, size)
    end += size
    count += 1
    end - size
  }

  def walk: ArenaWalk = new ArenaWalk(Array(segment.address), Array(end))

  /** Returns true if an address lies in the segment. */
  def holds(address: Long): Boolean = address >= segment.address && address < end

  def free(): Unit = segment.free()
}

private[recent] object EvictableSegment {

  /** Reserves room for records of this many bytes; None if the budget has less left. */
  def reserve(bytes: Long, sequence: Long, memory: StoreMemory): Option[EvictableSegment] =
    if (memory.reserve(bytes)) {
      val segment = Segment.reserved(bytes, memory)
      Some(new EvictableSegment(segment, segment.address, 0, sequence))
    } else None
}
