package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import java.util.Arrays

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Reserved
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{
  ArenaWalk, Bytes, MergedRecords, OffHeap, OrderedRecords, PrefixIndex, Record, RecordSpool, RowSizes, SlotHash,
  SortedRecords
}
import org.apache.spark.sql.execution.streaming.state.incremental.recent.MemTable
import org.apache.spark.sql.execution.streaming.state.incremental.sst.Cursor

// Scans of a transaction: a scan in key order merges the task's changes with the committed rows of memory and base; a
// scan without order reads one after the other. The memory of open scans is freed with the transaction at the latest.

/**
 * A scan of a transaction: the rows with from <= key < until of its changes, of its view's generations, and of the
 * base. Each source leaves out the keys that a newer source has a record of. The scan starts before the first row,
 * shows the rows as they were when it began, whatever the transaction changes meanwhile, and ends with the transaction.
 * For the transaction's calls.
 *
 * @param skip number of bytes at the beginning of the keys that the scan does not show
 */
private[incremental] abstract class Scan(
    transaction: Transaction,
    from: Array[Byte],
    until: Array[Byte],
    skip: Int)
    extends AutoCloseable {
  protected final val memtable = transaction.memtable
  protected final val view = transaction.view
  private val buffer = transaction.scans.buffer

  /** The number of keys that the transaction had changed when the scan began. */
  protected final val changed = memtable.changes
  private var open = true

  /** The array with the row, which stays as it is, and the row's place in it. Null if there is no row. */
  final var bytes: Array[Byte] = _
  final var keyAt = 0
  final var keyLength = 0
  final var valueLength = 0

  /**
   * Keeps the memtable from overwriting records in place until the scan is closed. Call this once, when the scan is
   * open.
   */
  private[transaction] final def pin(): Unit = memtable.pins += 1

  final def valueAt: Int = keyAt + keyLength
  /**
   * Copies the key, without the bytes that the scan does not show, or the value of the row that the last [[advance]]
   * moved to; the caller may keep the arrays.
   */
  final def key: Array[Byte] = Arrays.copyOfRange(bytes, keyAt, valueAt)
  final def value: Array[Byte] = Arrays.copyOfRange(bytes, valueAt, valueAt + valueLength)

  /** Moves to the next row; returns false if there is none, at each further call, too. */
  final def advance(): Boolean = {
    transaction.calls.enter()
    try {
      val hasRow = open && step()
      if (!hasRow) {
        bytes = null
        finish()
      }
      hasRow
    } catch { case e: Throwable => transaction.calls.fail(explained(e)) }
    finally transaction.calls.exit()
  }

  private def explained(error: Throwable): Throwable = error match {
    case _: InternalError if view.base != null => view.base.noteFailure(error)
    case _ => error
  }

  /** Closes the scan; may be called any number of times. A scan that reached its end is closed. */
  final def close(): Unit = if (open) transaction.calls.unlessEnded(finish())

  private def finish(): Unit = if (open) {
    open = false
    memtable.pins -= 1
    closeSources()
  }

  /** Moves to the next row and sets it; returns false if there is none. */
  protected def step(): Boolean

  protected def closeSources(): Unit

  protected final def set(record: Long): Unit = {
    keyLength = Record.keyLength(record) - skip
    valueLength = Record.valueLength(record)
    keyAt = buffer.copy(Record.keyAddress(record) + skip, Math.addExact(keyLength, valueLength))
    bytes = buffer.bytes
  }

  protected final def set(cursor: Cursor): Unit = {
    keyLength = cursor.keyLength - skip
    valueLength = cursor.valueLength
    keyAt = buffer.copy(cursor.keyAddress + skip, keyLength, cursor.valueAddress, valueLength)
    bytes = buffer.bytes
  }

  /** Returns true if the transaction had changed a key when the scan began. */
  protected final def changedBefore(hash: Int, keyAt: Long, length: Int): Boolean =
    changed > 0 && {
      val slot = memtable.find(hash, keyAt, length)
      slot != 0 && memtable.changedBefore(slot, changed)
    }

  /** Returns the changes so far in the range, removed keys too; give the list back to the transaction. */
  protected final def changedRecords(): RecordSpool = {
    val spool = transaction.scans.newSpool()
    if (changed > 0) memtable.foreachChange(record => if (Record.within(record, from, until)) spool.add(record))
    spool
  }

  /** Moves to the next row of the base that memory has no record of; the base may be null. */
  protected final def step(base: Cursor): Boolean = {
    while (base != null && base.isBefore(until)) {
      val isShown = isNewest(base)
      if (isShown) set(base)
      base.next()
      if (isShown) return true
    }
    false
  }

  /**
   * Returns true if the base has the newest value of the cursor's key: neither this transaction nor a generation in
   * memory has changed the key.
   */
  private def isNewest(cursor: Cursor): Boolean = {
    val hash = SlotHash.of(null, cursor.keyAddress, cursor.keyLength).toInt
    !changedBefore(hash, cursor.keyAddress, cursor.keyLength) &&
    !view.overrides(hash, cursor.keyAddress, cursor.keyLength)
  }
}

/** A scan in key order. */
private[incremental] final class OrderedScan(transaction: Transaction, from: Array[Byte], until: Array[Byte], skip: Int)
    extends Scan(transaction, from, until, skip) {
  /** The changes of the transaction in the range, removed keys too. */
  private val changes: OrderedRecords =
    transaction.scans.keep(
      if (PrefixIndex.serves(from, until)) memtable.ordered.beginningWith(from, until)
      else memtable.ordered.in(from, until))
  private val committed = new CommittedRows(view, memtable, transaction.scans, from, until)

  /** True if the row before this one is a committed row, or if there was none. */
  private var leavesCommitted = true

  /** The number of keys without a row that the scan has passed, without the transaction's own. */
  def passed: Long = committed.passed

  protected def step(): Boolean = {
    if (leavesCommitted) committed.next()
    leavesCommitted = false
    var hasRow = false
    while (!hasRow && (changes.record != 0 || committed.isAtRow)) {
      val change = changes.record
      val order =
        if (change == 0) 1
        else if (!committed.isAtRow) -1
        else
          Bytes.compare(
            null, Record.keyAddress(change), Record.keyLength(change), null, committed.keyAddress, committed.keyLength)
      if (order <= 0) {
        changes.next()
        if (order == 0) committed.next()
        hasRow = !Record.isRemoved(change)
        if (hasRow) set(change)
      } else {
        if (committed.record == 0) set(committed.cursor) else set(committed.record)
        leavesCommitted = true
        hasRow = true
      }
    }
    hasRow
  }

  protected def closeSources(): Unit = {
    transaction.scans.free(changes)
    committed.close()
  }
}

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

/**
 * A scan without order: the changes, then the generations in the order of their tables, then the base in its own order.
 */
private[transaction] final class UnorderedScan(transaction: Transaction, from: Array[Byte], until: Array[Byte],
    skip: Int)
    extends Scan(transaction, from, until, skip) {
  private val changes = changedRecords()
  private var pendingLeft = view.pending.length
  private var next = 0L
  private var slot = 0L
  private val index = view.indexed.index

  /**
   * True to read the records in the order in which they lie in memory. False to follow the index, because most records
   * in memory are overwritten ones.
   */
  private val walks = view.indexed.records <= index.count * 3
  private val arenas = view.indexed.arenas
  private var walk: ArenaWalk = _
  private val records = new Array[Long](UnorderedScan.atOnce)
  private val newest = new Array[Long](UnorderedScan.atOnce)
  private var read = 0
  private var position = 0
  private var base: Cursor = _
  private var baseBegun = false

  protected def step(): Boolean = stepChanges() || stepPending() || stepIndex() || stepBase()

  private def stepChanges(): Boolean = {
    var record = changes.next()
    while (record != 0 && Record.isRemoved(record)) record = changes.next()
    if (record != 0) set(record)
    record != 0
  }

  private def stepPending(): Boolean = {
    while (pendingLeft > 0) {
      val memtable = view.pending(pendingLeft - 1).memtable
      while (next < memtable.slotCount) {
        val record = memtable.recordAt(next)
        next += 1
        if (record != 0 && shows(record, view.pending.length - pendingLeft)) {
          set(record)
          return true
        }
      }
      pendingLeft -= 1
      next = 0
    }
    false
  }

  private def stepIndex(): Boolean = if (walks) stepGenerations() else stepSlots()

  private def stepGenerations(): Boolean = {
    while (position < read || readSome()) {
      val record = newest(position)
      position += 1
      if (shows(record, view.pending.length)) {
        set(record)
        return true
      }
    }
    false
  }

  /** Reads further records of the arenas; returns false at their end. */
  private def readSome(): Boolean = {
    read = 0
    position = 0
    while (read == 0 && (walk != null || arenas.hasNext)) {
      if (walk == null) walk = arenas.next()
      val n = walk.next(records)
      if (n == 0) walk = null
      read = view.indexed.newest(records, n, newest)
    }
    read > 0
  }

  private def stepSlots(): Boolean = {
    while (slot < index.size) {
      val record = index.at(slot)
      slot += 1
      if (record != 0 && shows(record, view.pending.length)) {
        set(record)
        return true
      }
    }
    false
  }

  /**
   * Returns true if a record is a row in the range, and neither the n newest generations nor the changes have its key.
   */
  private def shows(record: Long, n: Int): Boolean =
    !Record.isRemoved(record) && Record.within(record, from, until) && {
      val hash = Record.hash(record)
      val at = Record.keyAddress(record)
      val length = Record.keyLength(record)
      !changedBefore(hash, at, length) && !(n > 0 && view.pendingHas(n, hash, at, length))
    }

  private def stepBase(): Boolean = {
    if (!baseBegun) {
      base = view.baseCursor(from, until)
      baseBegun = true
    }
    step(base)
  }

  protected def closeSources(): Unit = {
    transaction.scans.free(changes)
    if (base != null) base.close()
  }
}

private[transaction] object UnorderedScan {
  private val atOnce = 64
}

/**
 * The memory of a transaction's open scans; freed with the transaction at the latest. Within the transaction's calls.
 */
private[transaction] final class ScanMemory(memtable: MemTable) {
  private val spools = new java.util.HashSet[RecordSpool]
  private val orders = new java.util.HashSet[OrderedRecords]

  /** The buffer that scans copy rows to. */
  lazy val buffer = new EntryBuffer

  /** Returns a new list of records for a scan. */
  def newSpool(): RecordSpool = {
    val spool = memtable.newSpool()
    spools.add(spool)
    spool
  }

  def free(spool: RecordSpool): Unit = if (spools.remove(spool)) spool.free()

  /** Keeps records that a scan goes through in key order, and returns them. */
  def keep(order: OrderedRecords): OrderedRecords = {
    if (order.isOffHeap) orders.add(order)
    order
  }

  def free(order: OrderedRecords): Unit = if (order.isOffHeap && orders.remove(order)) order.free()

  /** Frees all memory, once, after the last call. */
  def freeAll(): Unit = {
    spools.forEach(_.free())
    orders.forEach(_.free())
  }
}

/**
 * A buffer of copies of rows on the heap, many in one array. A copy stays as it is: a full array is left to those who
 * still use it. Arrays grow with use, so that a scan of five rows takes little memory. For one thread.
 */
private[transaction] final class EntryBuffer {
  private var chunk = new Array[Byte](EntryBuffer.smallest)
  private var end = 0

  /** The array of the last copy. */
  def bytes: Array[Byte] = chunk

  /**
   * Copies bytes from outside the heap.
   *
   * @return the position of the copy in [[bytes]], until the next copy
   */
  def copy(address: Long, length: Int): Int = {
    val at = take(length)
    OffHeap.copyMemory(null, address, chunk, OffHeap.arrayBase + at, length)
    at
  }

  /** Copies two pieces, one behind the other, like the other `copy`. */
  def copy(address: Long, length: Int, address2: Long, length2: Int): Int = {
    val at = take(Math.addExact(length, length2))
    OffHeap.copyMemory(null, address, chunk, OffHeap.arrayBase + at, length)
    OffHeap.copyMemory(null, address2, chunk, OffHeap.arrayBase + at + length, length2)
    at
  }

  private def take(length: Int): Int = {
    if (length > chunk.length - end) {
      val standard = math.min(chunk.length * 2L, EntryBuffer.largest)
      chunk = new Array[Byte](math.max(length, standard.toInt))
      end = 0
    }
    end += length
    end - length
  }
}

private[transaction] object EntryBuffer {
  private val smallest = 1 << 10
  private val largest = 32L << 10
}
