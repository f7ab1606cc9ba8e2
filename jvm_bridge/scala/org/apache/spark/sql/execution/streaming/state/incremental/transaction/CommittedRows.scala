package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import java.util.Arrays

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Reserved
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{
  Bytes, MergedRecords, OffHeap, OrderedRecords, PrefixIndex, Record, RowSizes, SlotHash, SortedRecords
}
import org.apache.spark.sql.execution.streaming.state.incremental.recent.MemTable
import org.apache.spark.sql.execution.streaming.state.incremental.sst.Cursor

/**
 * The rows of a view with from <= key < until (null: to the end) in key order: those of memory, and those of the base
 * that memory has no record of. It reads the parts between the version's [[EmptyRanges]] in turn, and adds a range if
 * it passes many removed keys. It stands before the first row until [[next]]. For one thread at a time.
 */
private[transaction] final class CommittedRows(
    view: ReadView,
    memtable: MemTable,
    scans: ScanMemory,
    from: Array[Byte],
    until: Array[Byte]) {
  /** True if the range is a prefix. A prefix usually has few records: they are found by the prefix, and sorted. */
  private val isPrefix = PrefixIndex.serves(from, until)

  /** The ranges that are known to be empty, and the first of them after the current part. */
  private val ranges = if (isPrefix) EmptyRanges.none else view.empty.overlapping(from, until)
  private var nextRange = 0

  /** The end of the current part, and the rows of memory and base up to it. */
  private var end = until
  private var memory = OrderedRecords.none
  private var base: Cursor = _

  /** True if the current key, a row's or a removed one, is in memory, or in the base. */
  private var inMemory = false
  private var inBase = false

  /** The key of the row before: the key of a record, or else bytes of this length; -1 before the first row. */
  private var lastRecord = 0L
  private var lastKey = Array.emptyByteArray
  private var lastLength = -1

  /** The numbers of removed keys passed here, in the parts before, and in all at the row before. */
  private var passedHere = 0L
  private var passedInParts = 0L
  private var passedAtRow = 0L

  /** True if another part began since the row before. */
  private var joins = false

  if (nextRange < ranges.length && Arrays.compareUnsigned(ranges(0).from, from) <= 0) openNext() else open(from)

  /** Returns true if there is a row; the next members describe its key. */
  def isAtRow: Boolean = inMemory || inBase
  def keyAddress: Long = if (inMemory) Record.keyAddress(memory.record) else base.keyAddress
  def keyLength: Int = if (inMemory) Record.keyLength(memory.record) else base.keyLength

  /** The record of the row; 0 if the row is at [[cursor]]. */
  def record: Long = if (inMemory) memory.record else 0
  def cursor: Cursor = base

  /** The number of keys without a row that were passed; a key that memory and base both have may count twice. */
  def passed: Long = passedHere + passedInParts + passedInPart

  private def passedInPart: Long = memory.passed + (if (base == null) 0 else base.passed)

  /** Moves to the next row, if there is one. */
  def next(): Unit = {
    if (isAtRow) {
      if (!isPrefix) keepKey()
      leave()
    }
    while (find() && isWithoutRow) {
      passedHere += 1
      leave()
    }
    if (!isPrefix) addRange()
  }

  private def keepKey(): Unit = {
    lastRecord = record
    lastLength = keyLength
    if (lastRecord == 0) {
      if (lastKey.length < lastLength) lastKey = new Array[Byte](RowSizes.doubled(lastLength))
      OffHeap.copyMemory(null, keyAddress, lastKey, OffHeap.arrayBase, lastLength)
    }
  }

  /** Finds the next key; returns false if there is none. */
  private def find(): Boolean = {
    while (!findInPart() && nextRange < ranges.length) openNext()
    isAtRow
  }

  private def findInPart(): Boolean = {
    val record = memory.record
    val more = base != null && base.isBefore(end)
    val order =
      if (record == 0) 1
      else if (!more) -1
      else Bytes.compare(null, Record.keyAddress(record), Record.keyLength(record), null, base.keyAddress,
        base.keyLength)
    inMemory = record != 0 && order <= 0
    inBase = more && order >= 0
    isAtRow
  }

  /**
   * Returns true if the current key is removed. The index of prefixes has no removed keys, so the base's keys are
   * looked up.
   */
  private def isWithoutRow: Boolean =
    if (inMemory) Record.isRemoved(memory.record)
    else isPrefix && view.overrides(SlotHash.of(null, base.keyAddress, base.keyLength).toInt, base.keyAddress,
      base.keyLength)

  /** Moves on from the current key. */
  private def leave(): Unit = {
    if (inMemory) memory.next()
    if (inBase) base.next()
    inMemory = false
    inBase = false
  }

  /** Opens the part after the next range; if that fails, the next call tries again. */
  private def openNext(): Unit = {
    nextRange += 1
    try open(ranges(nextRange - 1).until)
    catch {
      case e: Throwable =>
        nextRange -= 1
        throw e
    }
    joins = true
  }

  private def open(start: Array[Byte]): Unit = {
    val partEnd = if (nextRange < ranges.length) ranges(nextRange).from else until
    val records = if (isPrefix) withPrefix() else inRange(start, partEnd)
    val cursor = view.baseCursor(start, partEnd)
    passedInParts += passedInPart
    if (base != null) base.close()
    end = partEnd
    memory = records
    base = cursor
  }

  private def withPrefix(): OrderedRecords = {
    scans.keep(memtable.inKeyOrder { add =>
      view.indexed.ordered.foreachWith(from, until)(record => if (isNewest(record, view.pending.length)) add(record))
      view.pending.indices.foreach { i =>
        pendingSources(i, from, until).foreach(_.foreach(record => if (!Record.isRemoved(record)) add(record)))
      }
    })
  }

  private def inRange(start: Array[Byte], end: Array[Byte]): OrderedRecords = {
    val pending = view.pending.indices.flatMap(pendingSources(_, start, end))
    new MergedRecords(pending ++ view.indexed.ordered.sourcesIn(start, end, isNewest(_, view.pending.length)))
  }

  private def pendingSources(i: Int, start: Array[Byte], end: Array[Byte]): Seq[SortedRecords] =
    view.pending(i).sorted.sourcesIn(start, end, isNewest(_, view.pending.length - 1 - i))

  /** Returns true if none of the newest pending generations, `newer` of them, has the key. */
  private def isNewest(record: Long, newer: Int): Boolean =
    newer == 0 || !view.pendingHas(newer, Record.hash(record), Record.keyAddress(record), Record.keyLength(record))

  /** Adds the range between the row before and this one, if many keys without a row lie in it. */
  private def addRange(): Unit = {
    val all = passed
    if (view.empty.isWorth(all - passedAtRow) || joins && all > passedAtRow) {
      val after = if (isAtRow) Bytes.array(keyAddress, keyLength) else if (until == null) Reserved.from else until
      view.empty.add(firstAfterLast, after, all - passedAtRow)
    }
    passedAtRow = all
    joins = false
  }

  /** Returns the first key that may come after the key of the row before. */
  private def firstAfterLast: Array[Byte] =
    if (lastLength < 0) from
    else {
      val key = if (lastRecord == 0) Arrays.copyOf(lastKey, lastLength) else Record.key(lastRecord)
      Arrays.copyOf(key, lastLength + 1)
    }

  def close(): Unit = {
    scans.free(memory)
    if (base != null) base.close()
  }
}
