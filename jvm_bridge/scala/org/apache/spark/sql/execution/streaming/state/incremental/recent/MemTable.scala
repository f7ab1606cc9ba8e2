package org.apache.spark.sql.execution.streaming.state.incremental.recent

import java.io.File

import org.apache.spark.sql.execution.streaming.state.incremental.delta.OverwrittenChanges
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Arena, Bytes, PrefixIndex, Record, RecordList, Segment, SortedRuns, StoreMemory}
import org.apache.spark.unsafe.Platform

/**
 * The changes of one transaction: records in an arena, found through an open-addressing table of 16-byte
 * slots. Beside changes it remembers rows that the base was asked for (clean records), so that they are not
 * asked for twice. One thread at a time.
 *
 * A slot is 8 bytes record address (48 bits) and flags (16 bits), 4 bytes hash, 4 bytes ordinal: how many
 * keys had been changed when this one was first. What was there before the transaction is remembered as
 * [[MemTable.wasAbsent]] or [[MemTable.wasPresent]] where it is known; so the number of keys stays exact.
 *
 * @param expectedKeys what to make room for at once
 */
private[incremental] final class MemTable(memory: StoreMemory, spillDirectory: File, expectedKeys: Int) {
  import MemTable._

  val arena = new Arena(memory, spillDirectory)

  /** What changes of this transaction replaced of its own. */
  val overwritten = new OverwrittenChanges(memory, spillDirectory)

  /**
   * Changed records in key order, and those that are not in there yet; null until somebody asked for order.
   */
  private var runs: SortedRuns = _
  private var unsorted: RecordList = _

  /** Changed records by prefix; null until somebody scanned a prefix. */
  private var prefixes: PrefixIndex = _
  private var table: Segment = _
  private var slots = 0L
  private var mask = 0L
  private var count = 0L
  private var limit = 0L
  private var cleanCount = 0L
  private var cleanBytes = 0L

  /** Keys that were changed: put (and still there), removed. */
  var puts = 0L
  var removes = 0L

  /** Change of the number of keys by those changes whose state before is known. */
  var balance = 0L

  /** Changed keys whose state before is not known. */
  var unknown = 0L

  /** Iterators that read it: while there are any, records are not overwritten in place. */
  var pins = 0

  /** Number of keys changed so far; a key with a smaller ordinal had been changed by then. */
  def changes: Int = (puts + removes).toInt

  /** Keys that it has a record of, changed or not. */
  def size: Long = count

  /** Of all its memory. Any thread; about right while another thread changes it. */
  def bytes: Long = arena.bytes + overwritten.bytes + ofParts(_.bytes, _.bytes, _.bytes)

  /** Of what lies in files, likewise. */
  def spilledBytes: Long =
    arena.spilledBytes + overwritten.spilledBytes +
      ofParts(table => if (table.spilled) table.bytes else 0, _.spilledBytes, _.spilledBytes)

  private def ofParts(ofTable: Segment => Long, ofRuns: SortedRuns => Long, ofPrefixes: PrefixIndex => Long): Long =
    Option(table).fold(0L)(ofTable) + Option(runs).fold(0L)(ofRuns) + Option(prefixes).fold(0L)(ofPrefixes)

  /** The slot of a key, 0 when it has none. */
  def find(hash: Long, key: Array[Byte]): Long = {
    if (count == 0) return 0
    var slot = slots + ((hash & mask) << 4)
    while (true) {
      val head = Platform.getLong(null, slot)
      if (head == 0) return 0
      if (Platform.getInt(null, slot + 8) == hash.toInt && Record.hasKey(head & addressMask, hash.toInt, key)) return slot
      slot += slotBytes
      if (slot > slots + (mask << 4)) slot = slots
    }
    0
  }

  def find(hash: Int, keyAt: Long, length: Int): Long = {
    if (count == 0) return 0
    var slot = slots + ((hash & mask) << 4)
    while (true) {
      val head = Platform.getLong(null, slot)
      if (head == 0) return 0
      if (Platform.getInt(null, slot + 8) == hash && Record.hasKey(head & addressMask, hash, keyAt, length)) return slot
      slot += slotBytes
      if (slot > slots + (mask << 4)) slot = slots
    }
    0
  }

  def record(slot: Long): Long = Platform.getLong(null, slot) & addressMask
  def isChange(slot: Long): Boolean = (Platform.getLong(null, slot) & changed) != 0
  def priorKnown(slot: Long): Boolean = (Platform.getLong(null, slot) & (wasAbsent | wasPresent)) != 0

  /** Whether the key was there before the transaction, where [[priorKnown]]. */
  def wasThere(slot: Long): Boolean = (Platform.getLong(null, slot) & wasPresent) != 0

  /** Whether the key of that slot was already changed when that many keys were. */
  def changedBefore(slot: Long, ordinal: Int): Boolean =
    isChange(slot) && Platform.getInt(null, slot + 12) < ordinal

  /**
   * Changes a key.
   *
   * @param slot  what [[find]] said
   * @param value null removes
   * @param room  for the value to grow, at least its length
   * @param prior [[MemTable.wasAbsent]], [[MemTable.wasPresent]], or 0: not known, or the slot knows
   */
  def change(slot: Long, hash: Long, key: Array[Byte], value: Array[Byte], room: Int, prior: Long): Unit = {
    val length = if (value == null) Record.removed else value.length
    val old = if (slot == 0) 0L else record(slot)
    if (old != 0 && isChange(slot)) overwritten.add(old)
    val target =
      if (old != 0 && pins == 0 && Record.valueRoom(old) >= length) old
      else newRecord(hash, key, room)
    if (value != null) Platform.copyMemory(value, Platform.BYTE_ARRAY_OFFSET, null, Record.valueAddress(target), length)
    val at = if (slot == 0) insert(hash) else slot
    account(at, -1, if (old == 0) Record.removed else Record.valueLength(old))
    Record.setValueLength(target, length)
    val head = if (slot == 0) 0L else Platform.getLong(null, at)
    if ((head & changed) == 0) Platform.putInt(null, at + 12, changes)
    val known = if ((head & (wasAbsent | wasPresent)) != 0) head & (wasAbsent | wasPresent) else prior
    Platform.putLong(null, at, target | changed | known)
    if (prefixes != null && (head & changed) == 0) prefixes.add(target)
    else if (prefixes != null && target != old) prefixes.replace(old, target)
    if (unsorted != null && (target != old || (head & changed) == 0)) unsorted.add(target)
    account(at, 1, length)
  }

  /**
   * The value room that is free behind the value of a changed record that may be written in place; else 0.
   */
  def appendRoom(slot: Long): Int =
    if (slot == 0 || pins != 0 || !isChange(slot) || Record.isRemoved(record(slot))) 0
    else Record.valueRoom(record(slot)) - Record.valueLength(record(slot))

  /** Appends to a value whose [[appendRoom]] is large enough. */
  def append(slot: Long, delimiter: Byte, value: Array[Byte]): Unit = {
    val at = record(slot)
    val end = Record.valueAddress(at) + Record.valueLength(at)
    Platform.putByte(null, end, delimiter)
    Bytes.put(value, end + 1)
    Record.setValueLength(at, Record.valueLength(at) + 1 + value.length)
  }

  /**
   * Remembers what the base holds for a key that has no slot (value null: nothing), unless it has remembered
   * enough.
   */
  def remember(hash: Long, key: Array[Byte], value: Array[Byte]): Unit = {
    val length = if (value == null) 0 else value.length
    if (length <= largestClean && cleanBytes < mostCleanBytes) {
      val at = newRecord(hash, key, length)
      if (value == null) Record.setValueLength(at, Record.removed)
      else {
        Bytes.put(value, Record.valueAddress(at))
        Record.setValueLength(at, length)
      }
      cleanCount += 1
      cleanBytes += Record.size(at)
      Platform.putLong(null, insert(hash), at | (if (value == null) wasAbsent else wasPresent))
    }
  }

  /** Tells what there was before, for a changed key where it was not known. */
  def resolve(slot: Long, present: Boolean): Unit = {
    val length = Record.valueLength(record(slot))
    account(slot, -1, length)
    Platform.putLong(null, slot, Platform.getLong(null, slot) | (if (present) wasPresent else wasAbsent))
    account(slot, 1, length)
  }

  private def account(slot: Long, sign: Int, valueLength: Int): Unit = {
    val head = Platform.getLong(null, slot)
    if ((head & changed) != 0) {
      val present = if (valueLength == Record.removed) 0 else 1
      if (present == 1) puts += sign else removes += sign
      if ((head & wasPresent) != 0) balance += sign * (present - 1)
      else if ((head & wasAbsent) != 0) balance += sign * present
      else unknown += sign
    }
  }

  private def newRecord(hash: Long, key: Array[Byte], room: Int): Long = {
    val at = arena.allocate(Record.size(key.length, room))
    Record.setHeader(at, hash.toInt, key.length, Record.removed, room)
    Bytes.put(key, Record.keyAddress(at))
    at
  }

  /** A free slot for a new key, its hash set and its head still zero. */
  private def insert(hash: Long): Long = {
    if (count >= limit) grow()
    count += 1
    val slot = freeSlot(slots, mask, hash.toInt)
    Platform.putInt(null, slot + 8, hash.toInt)
    slot
  }

  private def freeSlot(base: Long, slotMask: Long, hash: Int): Long = {
    var i = hash & slotMask
    while (Platform.getLong(null, base + (i << 4)) != 0) i = (i + 1) & slotMask
    base + (i << 4)
  }

  private def grow(): Unit = {
    val capacity =
      if (table == null) math.max(smallestTable, java.lang.Long.highestOneBit(expectedKeys / 2L * 3 + 1) * 2)
      else (mask + 1) * 2
    val grown = memory.allocate(capacity << 4, spillDirectory)
    Platform.setMemory(grown.address, 0.toByte, grown.bytes)
    foreachSlot { slot =>
      val to = freeSlot(grown.address, capacity - 1, Platform.getInt(null, slot + 8))
      Platform.copyMemory(null, slot, null, to, slotBytes)
    }
    if (table != null) table.free()
    table = grown
    slots = grown.address
    mask = capacity - 1
    limit = capacity / 4 * 3
  }

  /** Every slot that is taken, in no order. */
  def foreachSlot(use: Long => Unit): Unit = if (table != null) {
    var slot = slots
    val end = slots + ((mask + 1) << 4)
    while (slot < end) {
      if (Platform.getLong(null, slot) != 0) use(slot)
      slot += slotBytes
    }
  }

  /** The current records of all changed keys, in no order. */
  def changedRecords(): Array[Long] = {
    val records = new Array[Long](changes)
    var n = 0
    foreachSlot { slot =>
      if (isChange(slot)) {
        records(n) = record(slot)
        n += 1
      }
    }
    records
  }

  private def foreachChange(use: Long => Unit): Unit = foreachSlot(slot => if (isChange(slot)) use(record(slot)))

  /** The current records of all changed keys in key order; the caller frees them. */
  def sortedChanges(): SortedRuns = {
    val sorted = new SortedRuns(memory, spillDirectory)
    try {
      sorted.addUnsorted(foreachChange, _ => true)
      sorted
    } catch {
      case e: Throwable =>
        sorted.free()
        throw e
    }
  }

  /** The current records of changed keys with from <= key < until (null: no end), run by run. */
  def changedIn(from: Array[Byte], until: Array[Byte])(use: Long => Unit): Unit = if (changes > 0) {
    if (runs == null) {
      runs = sortedChanges()
      unsorted = new RecordList
    }
    if (!unsorted.isEmpty) {
      runs.addUnsorted(unsorted.foreach, isCurrentChange)
      unsorted.clear()
    }
    runs.sourcesIn(from, until, isCurrentChange).foreach(_.foreach(use))
  }

  /**
   * The current records of changed keys that begin with a prefix that [[PrefixIndex.serves]], in no order.
   */
  def changedWith(prefix: Array[Byte])(use: Long => Unit): Unit = if (changes > 0) {
    if (prefixes == null) {
      prefixes = new PrefixIndex(memory, spillDirectory)
      foreachChange(prefixes.add)
    }
    prefixes.foreach(prefix)(use)
  }

  private def isCurrentChange(record: Long): Boolean = {
    val slot = find(Record.hash(record), Record.keyAddress(record), Record.keyLength(record))
    this.record(slot) == record && isChange(slot)
  }

  /** The current record of each key, changed or not, in no order. */
  def foreachRecord(use: Long => Unit): Unit = foreachSlot(slot => use(record(slot)))

  /** All of these. */
  def records(): Array[Long] = {
    val records = new Array[Long](count.toInt)
    var n = 0
    foreachSlot { slot =>
      records(n) = record(slot)
      n += 1
    }
    records
  }

  /** Gives the table back: records are no longer found by key. */
  def freeTable(): Unit = {
    freeRuns()
    if (table != null) table.free()
    table = null
    count = 0
  }

  /** Gives back what the order of keys takes. */
  def freeRuns(): Unit = {
    if (runs != null) runs.free()
    if (prefixes != null) prefixes.free()
    runs = null
    unsorted = null
    prefixes = null
  }

  def free(): Unit = {
    freeTable()
    overwritten.free()
    arena.free()
  }
}

private[incremental] object MemTable {
  private val slotBytes = 16L
  private val smallestTable = 64L
  private val addressMask = (1L << 48) - 1
  private val changed = 1L << 48
  private val largestClean = 4096
  private val mostCleanBytes = 16L << 20

  /** How many keys a new memtable may expect for its table to take no more than so many bytes. */
  def keysWithin(bytes: Long): Long = bytes / (3 * slotBytes)

  val wasAbsent: Long = 1L << 49
  val wasPresent: Long = 1L << 50
}
