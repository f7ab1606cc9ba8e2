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

  /** Its records as they were added, in an array of their own. */
  def toArray: Array[Long] = java.util.Arrays.copyOf(records, count)

  /** The same in key order. */
  def sorted(): Array[Long] = {
    val copy = toArray
    KeyOrder.sort(copy, count)
    copy
  }

  /** The same, to be gone through; of many records, those are sorted that are read. The list is not used any more. */
  def inOrder(): OrderedRecords =
    if (isEmpty) OrderedRecords.none
    else if (count > PartlySorted.mostAtOnce) new PartlySorted(java.util.Arrays.copyOf(records, count))
    else {
      KeyOrder.sort(records, count)
      asTheyAre
    }

  /** Its records as they were added, which is in key order. The list is not changed any more. */
  private[memory] def asTheyAre: OrderedRecords = new SortedRecords(records(_), 0, count, null, _ => true)

  def clear(): Unit = count = 0
}
