package org.apache.spark.sql.execution.streaming.state.incremental.recent

import java.io.File

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{
  MergedRecords, OrderedRecords, OrderedSnapshot, PieceTooLargeException, PrefixIndex, Record, RecordSpool, SortedRuns,
  StoreMemory
}

/**
 * The changed records of a memtable for scans in key order. The first scans sort them, or index them by prefix; later
 * changes keep both up to date. For one thread at a time.
 */
private[incremental] final class OrderedChanges private[recent] (
    memtable: MemTable,
    memory: StoreMemory,
    spillDirectory: File) {
  import OrderedChanges._

  /** The changes in key order, and the changes that are not in there yet; null before the first scan in order. */
  private var runs: SortedRuns = _
  private var unsorted: RecordSpool = _
  private var rangesAsked = 0

  /** The index by prefix; null before the first scan of a prefix. */
  private var prefixes: PrefixIndex = _
  private var prefixesFit = true

  /** The bytes of memory. For any thread; approximate while another thread changes the memtable. */
  def bytes: Long =
    Option(runs).fold(0L)(_.bytes) + Option(unsorted).fold(0L)(_.bytes) + Option(prefixes).fold(0L)(_.bytes)

  /** The bytes that lie in files. For any thread; approximate while another thread changes the memtable. */
  def spilledBytes: Long =
    Option(runs).fold(0L)(_.spilledBytes) + Option(unsorted).fold(0L)(_.spilledBytes) +
      Option(prefixes).fold(0L)(_.spilledBytes)

  /**
   * Notes that a key has a changed record.
   *
   * @param old the record of the key before; 0 if it had none
   * @param record the record of the key now
   * @param isFirst true if the key had not been changed before
   */
  private[recent] def note(old: Long, record: Long, isFirst: Boolean): Unit = {
    if (prefixes != null && isFirst) orDropPrefixes(prefixes.add(record))
    else if (prefixes != null && record != old) orDropPrefixes(prefixes.replace(old, record))
    if (unsorted != null && (record != old || isFirst)) unsorted.add(record)
  }

  /**
   * Returns the current records of changed keys with from <= key < until (null: no end), in key order, unaffected by
   * later changes; the caller frees them. The first few calls look through all changes; later calls keep them in order.
   */
  def in(from: Array[Byte], until: Array[Byte]): OrderedRecords =
    if (memtable.changes == 0) OrderedRecords.none
    else {
      rangesAsked += 1
      if (runs == null && rangesAsked <= maxUnordered) {
        snapshot(isSorted = false) { add =>
          memtable.foreachChange(record => if (Record.within(record, from, until)) add(record))
        }
      } else {
        keepOrder()
        snapshot(isSorted = true)(new MergedRecords(runs.sourcesIn(from, until, memtable.isCurrentChange)).foreach(_))
      }
    }

  private def snapshot(isSorted: Boolean)(foreach: (Long => Unit) => Unit): OrderedRecords =
    OrderedSnapshot.of(memory, spillDirectory, isSorted)(foreach)

  private def keepOrder(): Unit = {
    if (runs == null) {
      unsorted = memtable.newSpool()
      runs = memtable.sortedChanges()
    }
    if (!unsorted.isEmpty) {
      runs.addUnsorted(unsorted.foreach, memtable.isCurrentChange)
      unsorted.free()
    }
  }

  /**
   * Returns the current records of changed keys that begin with a prefix that [[PrefixIndex.serves]], in key order,
   * unaffected by later changes; the caller frees them.
   *
   * @param until the first key after the prefix
   */
  def beginningWith(prefix: Array[Byte], until: Array[Byte]): OrderedRecords = {
    if (prefixes == null && prefixesFit && memtable.changes > 0) {
      prefixes = new PrefixIndex(memory, spillDirectory)
      orDropPrefixes(memtable.foreachChange(prefixes.add))
    }
    if (prefixes == null) in(prefix, until)
    else {
      snapshot(isSorted = false)(prefixes.foreach(prefix)(_))
    }
  }

  /**
   * Runs an action on the index of prefixes, and drops the index if a prefix has more records than one piece of memory
   * takes: then scans use the order of keys.
   */
  private def orDropPrefixes(action: => Unit): Unit =
    try action
    catch {
      case _: PieceTooLargeException =>
        prefixes.free()
        prefixes = null
        prefixesFit = false
    }

  /** Frees the memory. A later scan makes the order anew. */
  def free(): Unit = {
    if (runs != null) runs.free()
    if (unsorted != null) unsorted.free()
    if (prefixes != null) prefixes.free()
    runs = null
    unsorted = null
    prefixes = null
  }
}

private object OrderedChanges {

  /** The number of scans that look through all changes, before sorting them is cheaper. */
  private val maxUnordered = 4
}
