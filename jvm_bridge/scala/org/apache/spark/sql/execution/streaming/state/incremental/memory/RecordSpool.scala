package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.io.File

/**
 * A list of records outside the heap, to be gone through once: then it is freed, and empty again. One thread.
 */
private[incremental] final class RecordSpool(memory: StoreMemory, spillDirectory: File) {
  private val arena = new Arena(memory, spillDirectory)
  private var segment = -1
  private var at = 0L
  private var end = 0L

  def isEmpty: Boolean = arena.segmentCount == 0
  def bytes: Long = arena.bytes
  def spilledBytes: Long = arena.spilledBytes

  /** Adds a record; before the first [[next]]. */
  def add(record: Long): Unit = OffHeap.putLong(null, arena.allocate(8), record)

  /** The next record, in the order in which they were added; 0 when there is none. */
  def next(): Long = {
    while (at == end && segment + 1 < arena.segmentCount) {
      segment += 1
      at = arena.segmentStart(segment)
      end = arena.segmentEnd(segment)
    }
    if (at == end) 0
    else {
      at += 8
      OffHeap.getLong(null, at - 8)
    }
  }

  /** Those that are left. */
  def foreach(use: Long => Unit): Unit = {
    var record = next()
    while (record != 0) {
      use(record)
      record = next()
    }
  }

  def free(): Unit = {
    arena.free()
    segment = -1
    at = 0
    end = 0
  }
}
