package org.apache.spark.sql.execution.streaming.state.incremental.recent

import java.io.File

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{MergedRecords, OrderedRecords, OrderedSnapshot, PieceTooLargeException, PrefixIndex, Record, RecordSpool, SortedRuns, StoreMemory}

/**
 * The changed records of a memtable for scans in key order: sorted, or found by their prefixes, from the first scans
 * that ask on, and kept up with the changes after that. One thread at a time.
 */
private[incremental] final class OrderedChanges private[recent] (
    memtable: MemTable,
    memory: StoreMemory,
    spillDirectory: File) {
  import OrderedChanges._

  /** In key order, and those that are not in there yet; null until somebody asked for order. */
  private var runs: SortedRuns = _
  private var unsorted: RecordSpool = _
  private var rangesAsked = 0

  /** By prefix; null until somebody scanned a prefix. */
  private var prefixes: PrefixIndex = _
  private var prefixesFit = true

  /** Any thread; about right while another thread changes it. */
  def bytes: Long =
    Option(runs).fold(0L)(_.bytes) + Option(unsorted).fold(0L)(_.bytes) + Option(prefixes).fold(0L)(_.bytes)

  /** Of what lies in files, likewise. */
  def spilledBytes: Long =
    Option(runs).fold(0L)(_.spilledBytes) + Option(unsorted).fold(0L)(_.spilledBytes) +
      Option(prefixes).fold(0L)(_.spilledBytes)

  /**
   * Notes that a key has a changed record.
   *
   * @param old     the record of the key before, 0 when it had none
   * @param isFirst whether the key had not been changed before
   */
  private[recent] def note(old: Long, record: Long, isFirst: Boolean): Unit = {
    if (prefixes != null && isFirst) orElseDoWithout(prefixes.add(record))
    else if (prefixes != null && record != old) orElseDoWithout(prefixes.replace(old, record))
    if (unsorted != null && (record != old || isFirst)) unsorted.add(record)
  }

  /**
   * The current records of changed keys with from <= key < until (null: no end), in key order, as they are now whatever
   * changes afterwards; the caller frees them. Before many ranges were asked for, all changes are looked through; then
   * they are kept in order.
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
   * The current records of changed keys that begin with a prefix that [[PrefixIndex.serves]], in key order, as they are
   * now; the caller frees them.
   *
   * @param until the first key after those
   */
  def beginningWith(prefix: Array[Byte], until: Array[Byte]): OrderedRecords = {
    if (prefixes == null && prefixesFit && memtable.changes > 0) {
      prefixes = new PrefixIndex(memory, spillDirectory)
      orElseDoWithout(memtable.foreachChange(prefixes.add))
    }
    if (prefixes == null) in(prefix, until)
    else {
      snapshot(isSorted = false)(prefixes.foreach(prefix)(_))
    }
  }

  /** Where a prefix has more records than fit into one piece of memory, the order of keys serves instead. */
  private def orElseDoWithout(action: => Unit): Unit =
    try action
    catch {
      case _: PieceTooLargeException =>
        prefixes.free()
        prefixes = null
        prefixesFit = false
    }

  /** Gives its memory back; who asks afterwards has it made anew. */
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

  /** For how many ranges all changes are looked through, before it is cheaper to sort them. */
  private val maxUnordered = 4
}
