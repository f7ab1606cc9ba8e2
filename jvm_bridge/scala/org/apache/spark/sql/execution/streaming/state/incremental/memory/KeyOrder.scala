package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.io.File
import java.util.SplittableRandom

import org.apache.spark.unsafe.array.LongArray
import org.apache.spark.unsafe.memory.MemoryBlock
import org.apache.spark.util.collection.unsafe.sort.RadixSort

// Records in key order: sorted in memory, merged from several sources, sorted as far as they are read, or sorted in
// runs outside the heap.

/**
 * Sorts records by key. Keys are compared 8 bytes at a time, from the depth at which they begin to differ: a common
 * prefix, as encoders write it, costs nothing. Takes 32 bytes of heap a record while it sorts.
 */
private[incremental] object KeyOrder {
  private val smallGroup = 24

  /** Sorts the first `count` records of an array in place. */
  def sort(records: Array[Long], count: Int): Unit =
    if (count > 1) new KeyOrder(records, count).sort()
}

private[incremental] final class KeyOrder private (records: Array[Long], count: Int) {
  /** Pairs of a record and 8 bytes of its key, with the room behind them that RadixSort needs. */
  private lazy val pairs = new LongArray(MemoryBlock.fromLongArray(new Array[Long](4 * count)))

  /** Groups that are still to be sorted, three numbers each: begin, end, and a lower bound of the bytes they share. */
  private var groups = new Array[Int](3 * 16)
  private var groupCount = 0

  private def sort(): Unit = {
    add(0, count, 0)
    while (groupCount > 0) {
      groupCount -= 1
      val at = 3 * groupCount
      sortGroup(groups(at), groups(at + 1), groups(at + 2))
    }
  }

  private def add(from: Int, to: Int, known: Int): Unit = {
    val at = 3 * groupCount
    if (at == groups.length) groups = java.util.Arrays.copyOf(groups, 2 * at)
    groups(at) = from
    groups(at + 1) = to
    groups(at + 2) = known
    groupCount += 1
  }

  private def sortGroup(from: Int, to: Int, known: Int): Unit = {
    val depth = if (to - from <= KeyOrder.smallGroup) Int.MaxValue else commonPrefix(from, to, known)
    if (depth == Int.MaxValue) insertion(from, to)
    else {
      val sorted = sortByWord(from, to, depth)
      var i = from
      while (i < to) {
        records(i) = pairs.get(sorted + 2 * (i - from))
        i += 1
      }
      addTies(from, to, sorted, depth + 8)
    }
  }

  /** Sorts the pairs of a group by the 8 bytes at `depth`, unsigned. Returns their index in `pairs` afterwards. */
  private def sortByWord(from: Int, to: Int, depth: Int): Int = {
    var i = from
    while (i < to) {
      val record = records(i)
      val at = 2 * (i - from)
      pairs.set(at, record)
      pairs.set(at + 1, Bytes.word(Record.keyAddress(record), Record.keyLength(record), depth))
      i += 1
    }
    RadixSort.sortKeyPrefixArray(pairs, 0, to - from, 0, 7, false, false)
  }

  /** Adds runs of equal words as groups. The words of the group's pairs begin at `sorted`. */
  private def addTies(from: Int, to: Int, sorted: Int, depth: Int): Unit = {
    def word(i: Int) = pairs.get(sorted + 2 * (i - from) + 1)
    var start = from
    while (start < to) {
      var end = start + 1
      while (end < to && word(end) == word(start)) end += 1
      if (end - start > 1) add(start, end, depth)
      start = end
    }
  }

  /** Returns the length of the common prefix, or MaxValue if the keys differ only in zeros at the end. */
  private def commonPrefix(from: Int, to: Int, known: Int): Int = {
    val first = records(from)
    val address = Record.keyAddress(first)
    var common = Record.keyLength(first)
    var longest = common
    var i = from + 1
    while (i < to && common > known) {
      val length = Record.keyLength(records(i))
      longest = math.max(longest, length)
      common =
        if (length <= known) known
        else known + Bytes.common(address + known, common - known, Record.keyAddress(records(i)) + known,
          length - known)
      i += 1
    }
    while (i < to) {
      longest = math.max(longest, Record.keyLength(records(i)))
      i += 1
    }
    val depth = math.max(common, known)
    if (longest <= depth) Int.MaxValue else depth
  }

  private def insertion(from: Int, to: Int): Unit = {
    var i = from + 1
    while (i < to) {
      val record = records(i)
      var j = i - 1
      while (j >= from && Record.compare(records(j), record) > 0) {
        records(j + 1) = records(j)
        j -= 1
      }
      records(j + 1) = record
      i += 1
    }
  }
}

/** Records in key order, shown one at a time. */
private[incremental] trait OrderedRecords {
  /** Address of the current record; 0 after the last. */
  def record: Long

  def next(): Unit

  /** Calls a function with each record that is left. */
  final def foreach(use: Long => Unit): Unit = while (record != 0) {
    use(record)
    next()
  }

  /** Number of records that were left out so far. A record of a removed key is shown, and does not count. */
  def passed: Long = 0

  /** True if the records take memory outside the heap until [[free]], after which [[next]] is not called. */
  def isOffHeap: Boolean = false

  def free(): Unit = ()
}

private[incremental] object OrderedRecords {
  val none: OrderedRecords = new OrderedRecords {
    override def record: Long = 0
    override def next(): Unit = ()
  }
}

/** Records of several sources in key order; no two sources have the same key. Used by one thread. */
private[incremental] final class MergedRecords(all: Seq[SortedRecords]) extends OrderedRecords {
  private val sources = all.filter(_.record != 0).sortWith((a, b) => Record.compare(a.record, b.record) < 0).toArray
  private var first = 0
  private var passedBySources = all.iterator.map(_.passed).sum

  override def passed: Long = passedBySources

  override def record: Long = if (first == sources.length) 0 else sources(first).record

  override def next(): Unit = {
    val source = sources(first)
    val before = source.passed
    source.next()
    passedBySources += source.passed - before
    if (source.record == 0) first += 1 else sink(source)
  }

  /** Moves the first source, whose record has changed, behind the sources whose records precede it. */
  private def sink(source: SortedRecords): Unit = {
    var i = first
    while (i + 1 < sources.length && Record.compare(sources(i + 1).record, source.record) < 0) {
      sources(i) = sources(i + 1)
      i += 1
    }
    sources(i) = source
  }
}

/**
 * Records in key order, read from a sorted place on demand. Used by one thread.
 *
 * @param at     returns the record at a position
 * @param from   the first position
 * @param end    the position after the last
 * @param until  first key whose record is left out; null if all are shown
 * @param wanted returns false for a record that is left out
 */
private[incremental] final class SortedRecords(
    at: Int => Long,
    from: Int,
    end: Int,
    until: Array[Byte],
    wanted: Long => Boolean)
    extends OrderedRecords {
  private var i = from
  private var head = 0L
  private var leftOut = 0L

  next()

  override def passed: Long = leftOut

  override def record: Long = head

  override def next(): Unit = {
    head = 0
    while (head == 0 && i < end) {
      val record = at(i)
      i += 1
      if (until != null && Bytes.compare(until, Record.keyAddress(record), Record.keyLength(record)) <= 0) i = end
      else if (wanted(record)) head = record
      else leftOut += 1
    }
  }
}

/**
 * Records in key order, sorted piece by piece on demand: a reader of the first few of many records does not pay for the
 * order of the others. Takes 16 bytes of heap a record. One thread.
 *
 * @param records sorted in place; the caller does not use the array any more
 */
private[memory] final class PartlySorted(records: Array[Long]) extends OrderedRecords {
  import PartlySorted._

  /** 8 bytes of each key, from the depth at which keys differ, as signed numbers in the order of these bytes. */
  private val words = wordsOf(records)
  private val random = new SplittableRandom(records.length)

  /** The ends of pieces, the nearest last; a piece has lesser keys than the pieces after it. */
  private var ends = Array.fill(32)(records.length)
  private var endCount = 1
  private var i = 0
  private var sorted = 0

  sortMore()

  override def record: Long = if (i < sorted) records(i) else 0

  override def next(): Unit = {
    i += 1
    if (i >= sorted) sortMore()
  }

  private def sortMore(): Unit = if (endCount > 0) {
    while (ends(endCount - 1) - sorted > maxAtOnce && divide(sorted, ends(endCount - 1))) {}
    val end = ends(endCount - 1)
    endCount -= 1
    val piece = java.util.Arrays.copyOfRange(records, sorted, end)
    KeyOrder.sort(piece, piece.length)
    System.arraycopy(piece, 0, records, sorted, piece.length)
    sorted = end
  }

  /**
   * Divides a piece into words less than one of its words, equal to it, and greater. Returns false if all are equal.
   */
  private def divide(from: Int, until: Int): Boolean = {
    val pivot = words(from + random.nextInt(until - from))
    var less = from
    var greater = until
    var at = from
    while (at < greater) {
      val word = words(at)
      if (word < pivot) {
        swap(at, less)
        less += 1
        at += 1
      } else if (word > pivot) {
        greater -= 1
        swap(at, greater)
      } else at += 1
    }
    if (greater < until) addEnd(greater)
    if (less > from) addEnd(less)
    less > from || greater < until
  }

  private def addEnd(end: Int): Unit = {
    if (endCount == ends.length) ends = java.util.Arrays.copyOf(ends, endCount * 2)
    ends(endCount) = end
    endCount += 1
  }

  private def swap(a: Int, b: Int): Unit = {
    val record = records(a)
    records(a) = records(b)
    records(b) = record
    val word = words(a)
    words(a) = words(b)
    words(b) = word
  }
}

private[memory] object PartlySorted {

  /** The number of records up to which a piece is not divided. */
  val maxAtOnce = 1024

  private def wordsOf(records: Array[Long]): Array[Long] = {
    val depth = commonPrefix(records)
    val words = new Array[Long](records.length)
    var i = 0
    while (i < records.length) {
      words(i) = Bytes.word(Record.keyAddress(records(i)), Record.keyLength(records(i)), depth) ^ Long.MinValue
      i += 1
    }
    words
  }

  /** Returns the length of the prefix that all keys have in common. */
  private def commonPrefix(records: Array[Long]): Int = {
    val first = Record.keyAddress(records(0))
    var common = Record.keyLength(records(0))
    var i = 1
    while (i < records.length) {
      common = Bytes.common(first, common, Record.keyAddress(records(i)), Record.keyLength(records(i)))
      i += 1
    }
    common
  }
}

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
