package org.apache.spark.sql.execution.streaming.state.incremental.memory

/**
 * Sorts records by key. Keys are compared 8 bytes at a time, at the depth where they begin to differ: what
 * encoders put in front of every key costs nothing.
 */
private[incremental] object KeyOrder {
  private val smallGroup = 24

  def sort(records: Array[Long]): Unit =
    if (records.length > 1) new KeyOrder(records).sort()
}

private[incremental] final class KeyOrder private (records: Array[Long]) {
  private val words = new Array[Long](records.length)
  private var spareRecords: Array[Long] = _
  private var spareWords: Array[Long] = _

  /** Groups that are still to be sorted, three numbers each: first, end, how many bytes they share at least. */
  private var groups = new Array[Int](3 * 16)
  private var groupCount = 0

  private def sort(): Unit = {
    add(0, records.length, 0)
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
      var i = from
      while (i < to) {
        words(i) = Bytes.word(Record.keyAddress(records(i)), Record.keyLength(records(i)), depth)
        i += 1
      }
      radix(from, to)
      addTies(from, to, depth + 8)
    }
  }

  private def addTies(from: Int, to: Int, depth: Int): Unit = {
    var start = from
    while (start < to) {
      var end = start + 1
      while (end < to && words(end) == words(start)) end += 1
      if (end - start > 1) add(start, end, depth)
      start = end
    }
  }

  /** How many first bytes all have in common; MaxValue when they differ in nothing but zeros at the end. */
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
        else known + Bytes.common(address + known, common - known, Record.keyAddress(records(i)) + known, length - known)
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

  /** Sorts by word, least significant byte first; bytes that are equal in all words cost one look. */
  private def radix(from: Int, to: Int): Unit = {
    if (spareWords == null) {
      spareWords = new Array[Long](records.length)
      spareRecords = new Array[Long](records.length)
    }
    val counts = countBytes(from, to)
    var w = words
    var r = records
    var w2 = spareWords
    var r2 = spareRecords
    var byte = 0
    while (byte < 8) {
      if (offsets(counts, byte, from, to - from)) {
        scatter(w, r, w2, r2, from, to, counts, byte)
        val tw = w; w = w2; w2 = tw
        val tr = r; r = r2; r2 = tr
      }
      byte += 1
    }
    if (w ne words) {
      System.arraycopy(w, from, words, from, to - from)
      System.arraycopy(r, from, records, from, to - from)
    }
  }

  private def countBytes(from: Int, to: Int): Array[Int] = {
    val counts = new Array[Int](8 * 256)
    var i = from
    while (i < to) {
      var word = words(i)
      var byte = 0
      while (byte < 8) {
        counts((byte << 8) + (word & 0xff).toInt) += 1
        word >>>= 8
        byte += 1
      }
      i += 1
    }
    counts
  }

  /** Turns the counts of a byte into where its values begin; false when one value has them all. */
  private def offsets(counts: Array[Int], byte: Int, from: Int, n: Int): Boolean = {
    var at = from
    var i = byte << 8
    val end = i + 256
    while (i < end) {
      val count = counts(i)
      if (count == n) return false
      counts(i) = at
      at += count
      i += 1
    }
    true
  }

  private def scatter(
      w: Array[Long],
      r: Array[Long],
      toWords: Array[Long],
      toRecords: Array[Long],
      from: Int,
      to: Int,
      next: Array[Int],
      byte: Int): Unit = {
    val shift = byte * 8
    var i = from
    while (i < to) {
      val slot = (byte << 8) + ((w(i) >>> shift) & 0xff).toInt
      val at = next(slot)
      next(slot) = at + 1
      toWords(at) = w(i)
      toRecords(at) = r(i)
      i += 1
    }
  }
}
