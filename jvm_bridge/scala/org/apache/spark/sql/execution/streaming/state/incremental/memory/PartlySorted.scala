package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.util.SplittableRandom

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
    while (ends(endCount - 1) - sorted > mostAtOnce && divide(sorted, ends(endCount - 1))) {}
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
  val mostAtOnce = 1024

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
