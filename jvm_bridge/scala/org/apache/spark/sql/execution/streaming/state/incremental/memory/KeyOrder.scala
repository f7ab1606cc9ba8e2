package org.apache.spark.sql.execution.streaming.state.incremental.memory

import org.apache.spark.unsafe.array.LongArray
import org.apache.spark.unsafe.memory.MemoryBlock
import org.apache.spark.util.collection.unsafe.sort.RadixSort

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
