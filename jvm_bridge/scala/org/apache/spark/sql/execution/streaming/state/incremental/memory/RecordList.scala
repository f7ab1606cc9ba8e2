package org.apache.spark.sql.execution.streaming.state.incremental.memory

/** A list of records that grows. */
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

  /** Its records in key order, in an array of their own. */
  def sorted(): Array[Long] = {
    val copy = java.util.Arrays.copyOf(records, count)
    KeyOrder.sort(copy)
    copy
  }

  /** The same, to be gone through. */
  def inOrder(): SortedRecords = {
    val records = sorted()
    new SortedRecords(records(_), 0, records.length, null, _ => true)
  }

  def clear(): Unit = count = 0
}
