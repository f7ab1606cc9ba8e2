package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.io.File

/**
 * A collection of records that is read in key order. The heap holds a bounded number of them; above it all are sorted
 * into the memory of the store. One thread.
 */
private[incremental] final class OrderedSnapshot private (memory: StoreMemory, spillDirectory: File) {
  private val pending = new RecordList
  private var runs: SortedRuns = _

  def add(record: Long): Unit = {
    pending.add(record)
    if (pending.size == SortedRuns.sortedAtOnce) moveOut()
  }

  private def moveOut(): Unit = {
    if (runs == null) runs = new SortedRuns(memory, spillDirectory)
    runs.add(pending.sorted(), _ => true)
    pending.clear()
  }

  private def inOrder(isSorted: Boolean): OrderedRecords =
    if (runs != null) {
      moveOut()
      new OrderedRuns(runs)
    } else if (isSorted) pending.asTheyAre
    else pending.inOrder()

  private def free(): Unit = if (runs != null) runs.free()
}

private[incremental] object OrderedSnapshot {

  /**
   * Returns the records that a function gives, in key order. The caller frees them. If this throws no memory stays
   * taken.
   *
   * @param isSorted true if they are given in key order
   * @param foreach gives each record to a function
   */
  def of(memory: StoreMemory, spillDirectory: File, isSorted: Boolean)(foreach: (
          Long => Unit) => Unit): OrderedRecords = {
    val snapshot = new OrderedSnapshot(memory, spillDirectory)
    try {
      foreach(snapshot.add)
      snapshot.inOrder(isSorted)
    } catch {
      case e: Throwable =>
        snapshot.free()
        throw e
    }
  }
}

/** Several sorted runs as one; [[free]] frees them. */
private[memory] final class OrderedRuns(runs: SortedRuns) extends OrderedRecords {
  private val merged = new MergedRecords(runs.sourcesIn(Array.emptyByteArray, null, _ => true))

  override def record: Long = merged.record
  override def next(): Unit = merged.next()
  override def isOffHeap: Boolean = true
  override def free(): Unit = runs.free()
}
