package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import java.util.Arrays

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Reserved
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, MergedRecords, OffHeap, OrderedRecords, PrefixIndex, Record, RowSizes, SlotHash, SortedRecords}
import org.apache.spark.sql.execution.streaming.state.incremental.recent.MemTable
import org.apache.spark.sql.execution.streaming.state.incremental.sst.Cursor

/**
 * The rows of a view with from <= key < until (null: to the end) in key order: those of memory, and those of the base
 * that memory has no record of. It reads one part after the other of what lies between the version's [[EmptyRanges]],
 * and where it passes many removed keys it tells these. Stands before the first row until [[next]]. One thread at a time.
 */
private[transaction] final class CommittedRows(
    view: ReadView,
    memtable: MemTable,
    scans: ScanMemory,
    from: Array[Byte],
    until: Array[Byte]) {
  /** A prefix mostly has few records: they are found by it, and sorted. */
  private val isPrefix = PrefixIndex.serves(from, until)

  /** What the version is known to lack, and the first of it that lies behind the part. */
  private val ranges = if (isPrefix) EmptyRanges.none else view.empty.overlapping(from, until)
  private var nextRange = 0

  /** The part that is read: what memory and base have up to its end. */
  private var end = until
  private var memory = OrderedRecords.none
  private var base: Cursor = _

  /** Where the key is that it stands at, a row's or a removed one. */
  private var inMemory = false
  private var inBase = false

  /** The key of the row before: that of a record, or else this many bytes; none before the first row. */
  private var lastRecord = 0L
  private var lastKey = Array.emptyByteArray
  private var lastLength = -1

  /** Removed keys passed here, in parts that were read, and in all when it stood at the row before. */
  private var passedHere = 0L
  private var passedInParts = 0L
  private var passedAtRow = 0L

  /** Whether it went on to another part since then. */
  private var joins = false

  if (nextRange < ranges.length && Arrays.compareUnsigned(ranges(0).from, from) <= 0) openNext() else open(from)

  /** Whether there is a row; the key that it stands at. */
  def isAtRow: Boolean = inMemory || inBase
  def keyAddress: Long = if (inMemory) Record.keyAddress(memory.record) else base.keyAddress
  def keyLength: Int = if (inMemory) Record.keyLength(memory.record) else base.keyLength

  /** The record of the row, 0 where it is what [[cursor]] stands at. */
  def record: Long = if (inMemory) memory.record else 0
  def cursor: Cursor = base

  /** How many keys without a row it has passed so far; one that memory and base both have may count for each. */
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
    if (!isPrefix) tell()
  }

  private def keepKey(): Unit = {
    lastRecord = record
    lastLength = keyLength
    if (lastRecord == 0) {
      if (lastKey.length < lastLength) lastKey = new Array[Byte](RowSizes.doubled(lastLength))
      OffHeap.copyMemory(null, keyAddress, lastKey, OffHeap.arrayBase, lastLength)
    }
  }

  /** Stands at the next key, if there is one. */
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
      else Bytes.compare(null, Record.keyAddress(record), Record.keyLength(record), null, base.keyAddress, base.keyLength)
    inMemory = record != 0 && order <= 0
    inBase = more && order >= 0
    isAtRow
  }

  /** The index of prefixes has no removed keys. */
  private def isWithoutRow: Boolean =
    if (inMemory) Record.isRemoved(memory.record)
    else isPrefix && view.overrides(SlotHash.of(null, base.keyAddress, base.keyLength).toInt, base.keyAddress, base.keyLength)

  /** Moves on from the key that it stands at. */
  private def leave(): Unit = {
    if (inMemory) memory.next()
    if (inBase) base.next()
    inMemory = false
    inBase = false
  }

  /** Goes on to the part behind the next range; where that fails, the next call does it. */
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

  /** Whether none of this many newest pending generations has the key. */
  private def isNewest(record: Long, newer: Int): Boolean =
    newer == 0 || !view.pendingHas(newer, Record.hash(record), Record.keyAddress(record), Record.keyLength(record))

  /** Tells how many keys without a row lie between the row before and this one. */
  private def tell(): Unit = {
    val all = passed
    if (view.empty.isWorth(all - passedAtRow) || joins && all > passedAtRow) {
      val behind = if (isAtRow) Bytes.array(keyAddress, keyLength) else if (until == null) Reserved.from else until
      view.empty.add(firstBehindLast, behind, all - passedAtRow)
    }
    passedAtRow = all
    joins = false
  }

  /** The first key that may come after that of the row before. */
  private def firstBehindLast: Array[Byte] =
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
