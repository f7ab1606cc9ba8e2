package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.io.File

/**
 * Addresses of records in key order, in a few sorted runs: two runs are merged when they have about the same length, so
 * that their number grows with the logarithm of the records. A record that is no longer wanted stays until a merge
 * drops it, so readers filter. Any number of threads may read while no thread changes it.
 */
private[incremental] final class SortedRuns(memory: StoreMemory, spillDirectory: File) {
  private var runs = new Array[Slots](8)
  private var lengths = new Array[Int](8)
  private var count = 0

  /** The sum of the reads ahead of [[head]], which keeps the compiler from removing them. */
  private var prefetched = 0

  /**
   * Bytes of the runs. This and [[spilledBytes]] may be read by any thread; they are approximate while another thread
   * changes the runs.
   */
  def bytes: Long = sum(_.bytes)
  def spilledBytes: Long = sum(_.spilledBytes)

  private def sum(of: Slots => Long): Long = runs.iterator.filter(_ != null).map(of).sum

  /**
   * Adds records that are in key order.
   *
   * @param wanted a merge of runs drops the records of which this is false
   */
  def add(sorted: Array[Long], wanted: Long => Boolean): Unit = if (sorted.length > 0) {
    if (count == runs.length) {
      runs = java.util.Arrays.copyOf(runs, count * 2)
      lengths = java.util.Arrays.copyOf(lengths, count * 2)
    }
    runs(count) = copy(sorted)
    lengths(count) = sorted.length
    count += 1
    while (count > 1 && lengths(count - 2) <= 2L * lengths(count - 1)) mergeLast(wanted)
  }

  /**
   * Adds records in any order. They are sorted in parts, so that the heap holds a bounded number of them.
   *
   * @param foreach gives each of them to a function
   * @param wanted as of [[add]]
   */
  def addUnsorted(foreach: (Long => Unit) => Unit, wanted: Long => Boolean): Unit = {
    val pending = new RecordList
    foreach { record =>
      pending.add(record)
      if (pending.size == SortedRuns.sortedAtOnce) {
        add(pending.sorted(), wanted)
        pending.clear()
      }
    }
    add(pending.sorted(), wanted)
  }

  /**
   * Adds the remaining records of a source in key order.
   *
   * @param wanted as of [[add]]
   */
  def addSorted(records: OrderedRecords, wanted: Long => Boolean): Unit = {
    val pending = new RecordList
    while (records.record != 0) {
      pending.add(records.record)
      records.next()
      if (pending.size == SortedRuns.sortedAtOnce) {
        add(pending.toArray, wanted)
        pending.clear()
      }
    }
    add(pending.toArray, wanted)
  }

  private def copy(records: Array[Long]): Slots = {
    val run = allocate(records.length)
    var i = 0
    while (i < records.length) {
      OffHeap.putLong(null, run.address(i), records(i))
      i += 1
    }
    run
  }

  private def allocate(n: Long): Slots = Slots.allocate(n, SortedRuns.slotShift, memory, spillDirectory)

  private def at(run: Int, i: Int): Long = OffHeap.getLong(null, runs(run).address(i))

  private def mergeLast(wanted: Long => Boolean): Unit = {
    val a = count - 2
    val b = count - 1
    val merged = allocate(lengths(a).toLong + lengths(b))
    var i = 0
    var j = 0
    var n = 0
    var x = head(a, 0)
    var y = head(b, 0)
    while (x != 0 || y != 0) {
      val fromA = y == 0 || x != 0 && Record.compare(x, y) <= 0
      val record = if (fromA) x else y
      if (fromA) {
        i += 1
        x = head(a, i)
      } else {
        j += 1
        y = head(b, j)
      }
      if (wanted(record)) {
        OffHeap.putLong(null, merged.address(n), record)
        n += 1
      }
    }
    runs(a).free()
    runs(b).free()
    runs(a) = merged
    runs(b) = null
    lengths(a) = n
    count = b
  }

  /**
   * Returns the record at an index of a run, 0 at its end. It reads each next few records together, so that the
   * processor waits for their memory at the same time.
   */
  private def head(run: Int, i: Int): Long = {
    if (i % SortedRuns.prefetchedAtOnce == 0) {
      val end = math.min(lengths(run), i + SortedRuns.prefetchedAtOnce)
      var next = i
      while (next < end) {
        prefetched += Record.hash(at(run, next))
        next += 1
      }
    }
    if (i < lengths(run)) at(run, i) else 0
  }

  /** Returns the wanted records with from <= key < until (null: no end), a source for each run. */
  def sourcesIn(from: Array[Byte], until: Array[Byte], wanted: Long => Boolean): Seq[SortedRecords] =
    Seq.tabulate(count) { run =>
      val slots = runs(run)
      new SortedRecords(i => OffHeap.getLong(null, slots.address(i)), firstNotBefore(run, from), lengths(run), until,
        wanted)
    }

  private def firstNotBefore(run: Int, key: Array[Byte]): Int = {
    var low = 0
    var high = lengths(run)
    while (low < high) {
      val middle = (low + high) >>> 1
      val record = at(run, middle)
      if (Bytes.compare(key, Record.keyAddress(record), Record.keyLength(record)) > 0) low = middle + 1
      else high = middle
    }
    low
  }

  /**
   * Replaces records of a place that will be freed by their copies.
   *
   * @param holds returns true for a record of the place
   * @param movedTo returns a record's copy, or 0 to drop it
   */
  def drop(holds: Long => Boolean, movedTo: Long => Long): Unit = {
    var run = 0
    while (run < count) {
      var n = 0
      var i = 0
      while (i < lengths(run)) {
        val old = at(run, i)
        val record = if (holds(old)) movedTo(old) else old
        if (record != 0) {
          OffHeap.putLong(null, runs(run).address(n), record)
          n += 1
        }
        i += 1
      }
      lengths(run) = n
      run += 1
    }
  }

  def free(): Unit = {
    runs.iterator.take(count).foreach(_.free())
    java.util.Arrays.fill(runs.asInstanceOf[Array[AnyRef]], null)
    count = 0
  }
}

private object SortedRuns {
  private val slotShift = 3

  /** Number of records of a run whose memory is waited for at the same time. */
  private val prefetchedAtOnce = 32

  /** Number of records that are sorted on the heap at a time, for about 40 bytes each. */
  private[memory] val sortedAtOnce = 1 << 18
}
