package org.apache.spark.sql.execution.streaming.state.incremental

import org.apache.spark.unsafe.Platform

/**
 * Records that outlived the generation that they were written in: the newest of their keys, held by the base
 * too. One thread at a time.
 *
 * @param turn its place among all that came into the index of a store, oldest first
 */
private[incremental] final class Survivors private (segment: Segment, val turn: Long) {
  private var end = segment.address
  private var count = 0L

  def bytes: Long = segment.bytes
  def records: Long = count

  /** Copies a record, for which room was reserved; the copy. */
  def add(record: Long): Long = {
    val size = Record.size(record)
    Platform.copyMemory(null, record, null, end, size)
    end += size
    count += 1
    end - size
  }

  def walk: ArenaWalk = new ArenaWalk(Array(segment.address), Array(end))

  /** Whether an address lies in it. */
  def holds(address: Long): Boolean = address >= segment.address && address < end

  def free(): Unit = segment.free()
}

private[incremental] object Survivors {

  /** Room for records of so many bytes; none when the budget has not so many left. */
  def reserve(bytes: Long, turn: Long, memory: StoreMemory): Option[Survivors] =
    if (memory.reserve(bytes)) Some(new Survivors(Segment.reserved(bytes, memory), turn)) else None
}
