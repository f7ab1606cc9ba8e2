package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.io.File

/**
 * Addresses of records in key order: a few sorted runs, of which two are merged when they are about as long,
 * so that there are no more than a logarithm of them. A record that is no longer wanted stays until a merge
 * meets it, so users ask for each. Many may read at a time while nobody changes it.
 */
private[incremental] final class SortedRuns(memory: StoreMemory, spillDirectory: File) {
  private var runs = new Array[Slots](8)
  private var lengths = new Array[Int](8)
  private var count = 0

  /** Takes what [[head]] reads ahead, so that the compiler does not remove it. */
  private var prefetched = 0

  /** Any thread, as [[spilledBytes]]; about right while another thread changes it. */
  def bytes: Long = sum(_.bytes)
  def spilledBytes: Long = sum(_.spilledBytes)

  private def sum(of: Slots => Long): Long = runs.iterator.filter(_ != null).map(of).sum

  /** Adds records that are in key order; merging, drops those that are not wanted. */
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
   * Adds records in any order. They are sorted some at a time, so that the heap never holds more of them than
   * these, however many there are.
   *
   * @param foreach gives each of them to a function
   */
  def addUnsorted(foreach: (Long => Unit) => Unit, wanted: Long => Boolean): Unit = {
    val some = new RecordList
    foreach { record =>
      some.add(record)
      if (some.size == SortedRuns.sortedAtOnce) {
        add(some.sorted(), wanted)
        some.clear()
      }
    }
    add(some.sorted(), wanted)
  }

  /** Adds what is left of records that are in key order; merging, drops those that are not wanted. */
  def addSorted(records: OrderedRecords, wanted: Long => Boolean): Unit = {
    val some = new RecordList
    while (records.record != 0) {
      some.add(records.record)
      records.next()
      if (some.size == SortedRuns.sortedAtOnce) {
        add(some.toArray, wanted)
        some.clear()
      }
    }
    add(some.toArray, wanted)
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

  /** The record at a position of a run, 0 at its end. Reads some of each next few, whose memory is waited for at once. */
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

  /** The wanted records with from <= key < until (null: no end), a source for each run. */
  def sourcesIn(from: Array[Byte], until: Array[Byte], wanted: Long => Boolean): Seq[SortedRecords] =
    Seq.tabulate(count) { run =>
      val slots = runs(run)
      new SortedRecords(i => OffHeap.getLong(null, slots.address(i)), firstNotBefore(run, from), lengths(run), until, wanted)
    }

  private def firstNotBefore(run: Int, key: Array[Byte]): Int = {
    var low = 0
    var high = lengths(run)
    while (low < high) {
      val middle = (low + high) >>> 1
      val record = at(run, middle)
      if (Bytes.compare(key, Record.keyAddress(record), Record.keyLength(record)) > 0) low = middle + 1 else high = middle
    }
    low
  }

  /** Drops the records of a place that is about to be freed, or has what they moved to (0: nothing) instead. */
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

  /** Of how many records of a run the memory is waited for at the same time. */
  private val prefetchedAtOnce = 32

  /** How many records are sorted on the heap at a time, for about 40 bytes each. */
  private[memory] val sortedAtOnce = 1 << 18
}
