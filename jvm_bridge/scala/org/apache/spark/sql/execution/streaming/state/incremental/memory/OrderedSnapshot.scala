package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.io.File

/**
 * Records that are collected and then gone through in key order. The heap holds a bounded number of them; where there are
 * more, all are sorted into the memory of the store. One thread.
 */
private[incremental] final class OrderedSnapshot(memory: StoreMemory, spillDirectory: File) {
  private val some = new RecordList
  private var runs: SortedRuns = _

  def add(record: Long): Unit = {
    some.add(record)
    if (some.size == SortedRuns.sortedAtOnce) moveOut()
  }

  private def moveOut(): Unit = {
    if (runs == null) runs = new SortedRuns(memory, spillDirectory)
    try runs.add(some.sorted(), _ => true)
    catch {
      case e: Throwable =>
        runs.free()
        throw e
    }
    some.clear()
  }

  /**
   * All of them; nothing is added any more.
   *
   * @param isSorted whether they were added in key order
   */
  def inOrder(isSorted: Boolean): OrderedRecords =
    if (runs != null) {
      moveOut()
      new OrderedRuns(runs)
    } else if (isSorted) some.asTheyAre
    else some.inOrder()
}

/** Sorted runs as one, which are freed with it. */
private[memory] final class OrderedRuns(runs: SortedRuns) extends OrderedRecords {
  private val merged = new MergedRecords(runs.sourcesIn(Array.emptyByteArray, null, _ => true))

  override def record: Long = merged.record
  override def next(): Unit = merged.next()
  override def isOffHeap: Boolean = true
  override def free(): Unit = runs.free()
}
