package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.io.File

/** A list of records on the heap that grows. One thread. */
private[incremental] final class RecordList {
  private var records = new Array[Long](16)
  private var count = 0

  def size: Int = count
  def apply(i: Int): Long = records(i)
  def isEmpty: Boolean = count == 0

  def add(record: Long): Unit = {
    if (count == records.length) records = java.util.Arrays.copyOf(records, count * 2)
    records(count) = record
    count += 1
  }

  def foreach(use: Long => Unit): Unit = {
    var i = 0
    while (i < count) {
      use(records(i))
      i += 1
    }
  }

  /** Returns the records as they were added, in an array of their own. */
  def toArray: Array[Long] = java.util.Arrays.copyOf(records, count)

  /** Returns the records in key order, in an array of their own. */
  def sorted(): Array[Long] = {
    val copy = toArray
    KeyOrder.sort(copy, count)
    copy
  }

  /** Returns the records in key order, sorted as they are read if they are many. The list is not used any more. */
  def inOrder(): OrderedRecords =
    if (isEmpty) OrderedRecords.none
    else if (count > PartlySorted.mostAtOnce) new PartlySorted(java.util.Arrays.copyOf(records, count))
    else {
      KeyOrder.sort(records, count)
      asTheyAre
    }

  /** Returns the records as they were added, in key order. The list is not changed any more. */
  private[memory] def asTheyAre: OrderedRecords = new SortedRecords(records(_), 0, count, null, _ => true)

  def clear(): Unit = count = 0
}

/** A list of records outside the heap that is read once: at its end it is freed and empty. One thread. */
private[incremental] final class RecordSpool(memory: StoreMemory, spillDirectory: File) {
  private val arena = new Arena(memory, spillDirectory)
  private var segment = -1
  private var at = 0L
  private var end = 0L

  def isEmpty: Boolean = arena.segmentCount == 0
  def bytes: Long = arena.bytes
  def spilledBytes: Long = arena.spilledBytes

  /** Adds a record. No record is added after the first [[next]]. */
  def add(record: Long): Unit = OffHeap.putLong(null, arena.allocate(8), record)

  /** Returns the next record, in the order in which they were added, or 0 at the end. */
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

  /** Passes the remaining records to a function. */
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
