package org.apache.spark.sql.execution.streaming.state.incremental.recent

import java.io.File

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{
  Arena, Bytes, OffHeap, OrderedRecords, OrderedSnapshot, Record, RecordSpool, Slots, SortedRuns, StoreMemory
}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.{DeltaWriter, OverwrittenChanges}

/**
 * The changes of one transaction: records in an arena, found through an open-addressing table of 16-byte slots. It also
 * remembers rows that the base was asked for (clean records), so that the base is not asked twice. For one thread at a
 * time.
 *
 * A slot has 8 bytes of record address (48 bits) and flags (16 bits), 4 bytes of hash, and 4 bytes of ordinal: the
 * number of keys that had been changed when this key was first changed. The state of a key before the transaction is
 * remembered as [[MemTable.wasAbsent]] or [[MemTable.wasPresent]] if it is known; so the number of keys stays exact.
 *
 * @param expectedKeys number of keys to make room for at once
 */
private[incremental] final class MemTable(memory: StoreMemory, spillDirectory: File, expectedKeys: Int) {
  import MemTable._

  val arena = new Arena(memory, spillDirectory)

  /** The changes that the change feed needs and the current records do not have. */
  val overwritten = new OverwrittenChanges(memory, spillDirectory)

  /** The changes in key order and by prefix. */
  val ordered = new OrderedChanges(this, memory, spillDirectory)
  private var table: Slots = _
  private var mask = 0L
  private var count = 0L
  private var limit = 0L
  private var cleanCount = 0L
  private var cleanBytes = 0L

  /** The numbers of changed keys: put (and still there), and removed. */
  var puts = 0L
  var removes = 0L

  /** The change of the number of keys by the changes whose state before is known. */
  var balance = 0L

  /** The number of changed keys whose state before is not known. */
  var unknown = 0L

  /** The number of open iterators: while there are any, records are not overwritten in place. */
  var pins = 0

  /** The number of keys changed so far; a key with a smaller ordinal had been changed by then. */
  def changes: Int = (puts + removes).toInt

  /** The number of keys that the memtable has a record of, changed or not. */
  def size: Long = count

  /** The bytes of all its memory. For any thread; approximate while another thread changes the memtable. */
  def bytes: Long = arena.bytes + overwritten.bytes + ordered.bytes + Option(table).fold(0L)(_.bytes)

  /** The bytes that lie in files. For any thread; approximate while another thread changes the memtable. */
  def spilledBytes: Long =
    arena.spilledBytes + overwritten.spilledBytes + ordered.spilledBytes + Option(table).fold(0L)(_.spilledBytes)

  /** Returns the slot of a key; 0 if it has none. */
  def find(hash: Long, key: Array[Byte]): Long = {
    if (count == 0) return 0
    var i = hash & mask
    while (true) {
      val slot = table.address(i)
      val head = OffHeap.getLong(null, slot)
      if (head == 0) return 0
      if (OffHeap.getInt(null, slot + 8) == hash.toInt && Record.hasKey(head & addressMask, hash.toInt, key))
        return slot
      i = (i + 1) & mask
    }
    0
  }

  def find(hash: Int, keyAt: Long, length: Int): Long = {
    if (count == 0) return 0
    var i = hash & mask
    while (true) {
      val slot = table.address(i)
      val head = OffHeap.getLong(null, slot)
      if (head == 0) return 0
      if (OffHeap.getInt(null, slot + 8) == hash && Record.hasKey(head & addressMask, hash, keyAt, length)) return slot
      i = (i + 1) & mask
    }
    0
  }

  def record(slot: Long): Long = OffHeap.getLong(null, slot) & addressMask
  def isChange(slot: Long): Boolean = (OffHeap.getLong(null, slot) & changed) != 0
  def priorKnown(slot: Long): Boolean = (OffHeap.getLong(null, slot) & (wasAbsent | wasPresent)) != 0

  /** Returns true if every change of the key since the first appended value is among the overwritten ones. */
  private def isRecorded(slot: Long): Boolean = (OffHeap.getLong(null, slot) & recorded) != 0

  /** Returns true if the key was there before the transaction; only if [[priorKnown]]. */
  def wasThere(slot: Long): Boolean = (OffHeap.getLong(null, slot) & wasPresent) != 0

  /** Returns true if the key of a slot was already changed when this number of keys were. */
  def changedBefore(slot: Long, ordinal: Int): Boolean =
    isChange(slot) && OffHeap.getInt(null, slot + 12) < ordinal

  /**
   * Changes a key.
   *
   * @param slot the slot that [[find]] returned
   * @param value the new value; null removes the key
   * @param room the bytes that the value may grow to, at least its length
   * @param prior [[MemTable.wasAbsent]] or [[MemTable.wasPresent]]; 0: not known, or the slot has it
   * @param appended the bytes that were appended to the value before; null if the value is another one
   */
  def change(
      slot: Long,
      hash: Long,
      key: Array[Byte],
      value: Array[Byte],
      room: Int,
      prior: Long,
      appended: Array[Byte]): Unit = {
    val length = if (value == null) Record.removed else value.length
    val old = if (slot == 0) 0L else record(slot)
    val wasRecorded = old != 0 && isRecorded(slot)
    if (old != 0 && isChange(slot) && !wasRecorded) overwritten.add(old)
    val target =
      if (old != 0 && pins == 0 && Record.valueRoom(old) >= length) old
      else newRecord(hash, key, room)
    if (value != null) OffHeap.copyMemory(value, OffHeap.arrayBase, null, Record.valueAddress(target), length)
    val at = if (slot == 0) insert(hash) else slot
    account(at, -1, if (old == 0) Record.removed else Record.valueLength(old))
    Record.setValueLength(target, length)
    val head = if (slot == 0) 0L else OffHeap.getLong(null, at)
    if ((head & changed) == 0) OffHeap.putInt(null, at + 12, changes)
    val priorState = if ((head & (wasAbsent | wasPresent)) != 0) head & (wasAbsent | wasPresent) else prior
    OffHeap.putLong(null, at, target | changed | priorState | (if (wasRecorded || appended != null) recorded else 0L))
    if (appended != null) overwritten.addAppended(target, appended) else if (wasRecorded) overwritten.add(target)
    ordered.note(old, target, isFirst = (head & changed) == 0)
    account(at, 1, length)
  }

  /** Returns the free bytes behind the value of a changed record that may be written in place; else 0. */
  def appendRoom(slot: Long): Int =
    if (slot == 0 || pins != 0 || !isChange(slot) || Record.isRemoved(record(slot))) 0
    else Record.valueRoom(record(slot)) - Record.valueLength(record(slot))

  /** Appends to a value whose [[appendRoom]] is large enough. */
  def append(slot: Long, delimiter: Byte, value: Array[Byte]): Unit = {
    val at = record(slot)
    if (!isRecorded(slot)) {
      overwritten.add(at)
      OffHeap.putLong(null, slot, OffHeap.getLong(null, slot) | recorded)
    }
    overwritten.addAppended(at, value)
    val end = Record.valueAddress(at) + Record.valueLength(at)
    OffHeap.putByte(null, end, delimiter)
    Bytes.put(value, end + 1)
    Record.setValueLength(at, Record.valueLength(at) + 1 + value.length)
  }

  /**
   * Remembers the value that the base holds for a key that has no slot (null: none), unless the memtable has remembered
   * enough.
   */
  def remember(hash: Long, key: Array[Byte], value: Array[Byte]): Unit = {
    val length = if (value == null) 0 else value.length
    if (length <= maxCleanLength && cleanBytes < maxCleanBytes) {
      val at = newRecord(hash, key, length)
      if (value == null) Record.setValueLength(at, Record.removed)
      else {
        Bytes.put(value, Record.valueAddress(at))
        Record.setValueLength(at, length)
      }
      cleanCount += 1
      cleanBytes += Record.size(at)
      OffHeap.putLong(null, insert(hash), at | (if (value == null) wasAbsent else wasPresent))
    }
  }

  /** Sets the state before the transaction, for a changed key whose state was not known. */
  def resolve(slot: Long, present: Boolean): Unit = {
    val length = Record.valueLength(record(slot))
    account(slot, -1, length)
    OffHeap.putLong(null, slot, OffHeap.getLong(null, slot) | (if (present) wasPresent else wasAbsent))
    account(slot, 1, length)
  }

  private def account(slot: Long, sign: Int, valueLength: Int): Unit = {
    val head = OffHeap.getLong(null, slot)
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

  /** Returns a free slot for a new key, with its hash set and its head still zero. */
  private def insert(hash: Long): Long = {
    if (count >= limit) grow()
    count += 1
    val slot = freeSlot(table, mask, hash.toInt)
    OffHeap.putInt(null, slot + 8, hash.toInt)
    slot
  }

  private def freeSlot(slots: Slots, slotMask: Long, hash: Int): Long = {
    var i = hash & slotMask
    while (OffHeap.getLong(null, slots.address(i)) != 0) i = (i + 1) & slotMask
    slots.address(i)
  }

  private def grow(): Unit = {
    val capacity =
      if (table == null) math.max(smallestTable, java.lang.Long.highestOneBit(expectedKeys / 2L * 3 + 1) * 2)
      else (mask + 1) * 2
    if (count >= maxKeys) {
      throw new IllegalStateException(s"A batch may change $maxKeys keys of a partition at most: use more partitions")
    }
    val grown = Slots.zeros(capacity, slotShift, memory, spillDirectory)
    foreachSlot { slot =>
      val to = freeSlot(grown, capacity - 1, OffHeap.getInt(null, slot + 8))
      OffHeap.copyMemory(null, slot, null, to, slotBytes)
    }
    if (table != null) table.free()
    table = grown
    mask = capacity - 1
    limit = math.min(maxKeys, capacity / 4 * 3)
  }

  /** Calls a function with every taken slot, in no order. */
  def foreachSlot(use: Long => Unit): Unit = if (table != null) {
    var piece = 0
    while (piece < table.pieceCount) {
      var slot = table.pieceStart(piece)
      val end = table.pieceEnd(piece)
      while (slot < end) {
        if (OffHeap.getLong(null, slot) != 0) use(slot)
        slot += slotBytes
      }
      piece += 1
    }
  }

  /** Calls a function with the current record of each changed key, in no order. */
  def foreachChange(use: Long => Unit): Unit = foreachSlot(slot => if (isChange(slot)) use(record(slot)))

  /** Calls a function with the record of each key that was read and not changed, in no order. */
  private[recent] def foreachUnchanged(use: Long => Unit): Unit =
    if (count > changes) foreachSlot(slot => if (!isChange(slot)) use(record(slot)))

  /** Calls a function with the current record of each key, changed or not, in no order. */
  private[recent] def foreachRecord(use: Long => Unit): Unit = foreachSlot(slot => use(record(slot)))

  /** Returns the current records of all changed keys in key order; the caller frees them. */
  private[recent] def sortedChanges(): SortedRuns = sorted(foreachChange)

  /** Returns the current record of each key, changed or not, in key order; the caller frees them. */
  private[recent] def sortedRecords(): SortedRuns = sorted(foreachRecord)

  private def sorted(foreach: (Long => Unit) => Unit): SortedRuns = {
    val sorted = new SortedRuns(memory, spillDirectory)
    try {
      sorted.addUnsorted(foreach, _ => true)
      sorted
    } catch {
      case e: Throwable =>
        sorted.free()
        throw e
    }
  }

  /** Returns a writer of the changes so far; the caller frees it. */
  def newDelta(): DeltaWriter = new DeltaWriter(sortedChanges(), changes, overwritten, memory, spillDirectory)

  /** Returns the records that a function gives to another, in key order; the caller frees them. */
  def inKeyOrder(foreach: (Long => Unit) => Unit): OrderedRecords =
    OrderedSnapshot.of(memory, spillDirectory, isSorted = false)(foreach)

  /** Returns a new list of records; the caller frees it. */
  def newSpool(): RecordSpool = new RecordSpool(memory, spillDirectory)

  /** Returns true if a record is the current record of its key, and a change. */
  private[recent] def isCurrentChange(record: Long): Boolean = {
    val slot = find(Record.hash(record), Record.keyAddress(record), Record.keyLength(record))
    this.record(slot) == record && isChange(slot)
  }

  /** The number of slots, taken or not, for [[recordAt]]; it stays while nobody changes the table. */
  def slotCount: Long = if (table == null) 0 else table.capacity

  /** Returns the current record of the key in a slot; 0 if the slot is free. */
  def recordAt(i: Long): Long = OffHeap.getLong(null, table.address(i)) & addressMask

  /** Gives the table back: records are no longer found by key. */
  private[recent] def freeTable(): Unit = {
    ordered.free()
    if (table != null) table.free()
    table = null
    count = 0
  }

  def free(): Unit = {
    freeTable()
    overwritten.free()
    arena.free()
  }
}

private[incremental] object MemTable {
  private val slotShift = 4
  private val slotBytes = 1L << slotShift

  /** The largest number of keys: ordinals have 4 bytes. */
  private val maxKeys = Int.MaxValue.toLong - 1
  private val smallestTable = 64L
  private val addressMask = (1L << 48) - 1
  private val changed = 1L << 48
  private val maxCleanLength = 4096
  private val maxCleanBytes = 16L << 20

  /** Returns the number of keys that a new memtable may expect if its table shall take no more than these bytes. */
  private[recent] def keysWithin(bytes: Long): Long = bytes / (3 * slotBytes)

  val wasAbsent: Long = 1L << 49
  val wasPresent: Long = 1L << 50
  private val recorded = 1L << 51
}
