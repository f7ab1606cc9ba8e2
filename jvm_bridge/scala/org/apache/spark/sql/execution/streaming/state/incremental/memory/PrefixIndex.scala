package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.io.File

/**
 * An index of records by the first part of their keys, for prefix scans. Keys state the length of that part, as Spark's
 * encoder for prefix scans writes them: after the 2-byte column family 4 bytes, little-endian, with the length. A key
 * with an impossible length is not in the index, nor is one with length zero: no prefix is empty, but keys of other
 * encoders may begin with zeros. Any number of threads may read it while no thread changes it.
 *
 * Open addressing, 8 bytes a slot: 16 bits of the prefix's hash and the address of a record, so that each of the few
 * records of a prefix takes a slot, next to the others. A prefix of more records has a set and one slot, whose lowest
 * bit is set: the time to find a record does not depend on the number of records.
 */
private[incremental] final class PrefixIndex(memory: StoreMemory, spillDirectory: File) {
  import PrefixIndex._

  private val sets = new RecordSets(memory, spillDirectory)
  private var table: Slots = _
  private var mask = 0L

  /** Number of slots that are not free, and of those that hold a record or a set. */
  private var taken = 0L
  private var live = 0L

  /**
   * Bytes of the index. This and [[spilledBytes]] may be read by any thread; they are approximate while another thread
   * changes the index.
   */
  def bytes: Long = sets.bytes + Option(table).fold(0L)(_.bytes)
  def spilledBytes: Long = sets.spilledBytes + Option(table).fold(0L)(_.spilledBytes)

  /** Adds a record that is not in the index. If it throws, for lack of memory, nothing has changed. */
  def add(record: Long): Unit = {
    val length = prefixLength(record)
    if (length >= 0) {
      if (table == null || (taken + 1) * 2 > mask + 1) rebuild()
      val at = Record.keyAddress(record)
      val hash = SlotHash.of(null, at, length)
      val tag = tagOf(hash)
      var alike = 0
      var free = -1L
      var i = hash & mask
      var head = headAt(i)
      while (head != 0 && !isSetOf(head, tag, at, length)) {
        if ((head & tagMask) == tag) alike += 1
        if (free < 0 && head == deleted) free = i
        i = (i + 1) & mask
        head = headAt(i)
      }
      if (head != 0) OffHeap.putLong(null, table.address(i), sets.add(setAt(head), record) | setBit | tag)
      else if (alike < maxSingle || !gather(hash, record, length)) {
        OffHeap.putLong(null, table.address(if (free < 0) i else free), record | tag)
        live += 1
        if (free < 0) taken += 1
      }
    }
  }

  /** Moves a record and those of its prefix from slots into a set if they are many. Returns true if it did. */
  private def gather(hash: Long, record: Long, length: Int): Boolean = {
    val at = Record.keyAddress(record)
    val records = new RecordList
    records.add(record)
    foreachSlot(hash, null, at, length)(slot => records.add(OffHeap.getLong(null, slot) & addressMask))
    val many = records.size > maxSingle
    if (many) {
      val set = sets.of(records) | setBit | tagOf(hash)
      var kept = false
      foreachSlot(hash, null, at, length) { slot =>
        OffHeap.putLong(null, slot, if (kept) deleted else set)
        kept = true
      }
      live -= records.size - 2
    }
    many
  }

  /** Replaces a record by another of the same key, or adds it if the old one is not in the index. */
  def replace(old: Long, record: Long): Unit = {
    val slot = slotOf(old)
    if (slot == 0) add(record)
    else {
      val head = OffHeap.getLong(null, slot)
      val replaced = if (isSet(head)) sets.replace(setAt(head), old, record) | setBit else record
      OffHeap.putLong(null, slot, replaced | (head & tagMask))
    }
  }

  /** Removes a record, if it is in the index. */
  def remove(record: Long): Unit = {
    val slot = slotOf(record)
    val head = if (slot == 0) 0 else OffHeap.getLong(null, slot)
    if (isSet(head)) {
      if (sets.remove(setAt(head), record) && sets.size(setAt(head)) == 1) {
        OffHeap.putLong(null, slot, sets.any(setAt(head)) | (head & tagMask))
        sets.discard(setAt(head))
      }
    } else if (slot != 0) {
      OffHeap.putLong(null, slot, deleted)
      live -= 1
    }
  }

  /** Returns the slot of a record, or of the set of its prefix; 0 if there is neither. */
  private def slotOf(record: Long): Long = {
    val length = if (table == null) -1 else prefixLength(record)
    if (length < 0) 0
    else {
      val at = Record.keyAddress(record)
      val hash = SlotHash.of(null, at, length)
      val tag = tagOf(hash)
      var i = hash & mask
      var head = headAt(i)
      while (head != 0 && head != (record | tag) && !isSetOf(head, tag, at, length)) {
        i = (i + 1) & mask
        head = headAt(i)
      }
      if (head == 0) 0 else table.address(i)
    }
  }

  /** Passes the slots of a prefix, those of its records or that of its set, to a function. */
  @inline private def foreachSlot(hash: Long, prefix: AnyRef, prefixAt: Long, length: Int)(use: Long => Unit): Unit = {
    val tag = tagOf(hash)
    var i = hash & mask
    var head = headAt(i)
    while (head != 0) {
      if ((head & tagMask) == tag && head != deleted && hasPrefix(head, prefix, prefixAt, length)) use(table.address(i))
      i = (i + 1) & mask
      head = headAt(i)
    }
  }

  private def headAt(i: Long): Long = OffHeap.getLong(null, table.address(i))

  private def isSetOf(head: Long, tag: Long, prefixAt: Long, length: Int): Boolean =
    isSet(head) && (head & tagMask) == tag && head != deleted && hasPrefix(head, null, prefixAt, length)

  private def hasPrefix(head: Long, prefix: AnyRef, prefixAt: Long, length: Int): Boolean = {
    val record = someRecord(head)
    Record.keyLength(record) >= length && Bytes.equal(prefix, prefixAt, null, Record.keyAddress(record), length)
  }

  private def someRecord(head: Long): Long = if (isSet(head)) sets.any(setAt(head)) else head & addressMask

  private def rebuild(): Unit = {
    val old = table
    val oldSlots = if (old == null) 0 else mask + 1
    val capacity = java.lang.Long.highestOneBit(live * 3 + smallest) * 2
    table = Slots.zeros(capacity, slotShift, memory, spillDirectory)
    mask = capacity - 1
    taken = live
    var i = 0L
    while (i < oldSlots) {
      val head = OffHeap.getLong(null, old.address(i))
      if (head != 0 && head != deleted) putFree(head)
      i += 1
    }
    if (old != null) old.free()
  }

  private def putFree(head: Long): Unit = {
    val record = someRecord(head)
    var i = SlotHash.of(null, Record.keyAddress(record), prefixLength(record)) & mask
    while (headAt(i) != 0) i = (i + 1) & mask
    OffHeap.putLong(null, table.address(i), head)
  }

  /**
   * Passes each record whose key begins with a prefix to a function, in no order.
   *
   * @param prefix the `from` of a range that [[PrefixIndex.serves]]
   */
  def foreach(prefix: Array[Byte])(use: Long => Unit): Unit = if (table != null) {
    foreachSlot(SlotHash.of(prefix), prefix, OffHeap.arrayBase, prefix.length) { slot =>
      val head = OffHeap.getLong(null, slot)
      if (isSet(head)) sets.foreach(setAt(head))(use) else use(head & addressMask)
    }
  }

  def free(): Unit = {
    sets.free()
    if (table != null) table.free()
    table = null
    mask = 0
    taken = 0
    live = 0
  }
}

private[incremental] object PrefixIndex {
  private val addressMask = (1L << 48) - 1
  private val tagMask = ~addressMask
  private val setBit = 1L

  /** The head of a deleted slot: the bit of a set without an address. */
  private val deleted = 1L

  /** Number of records of a prefix that may have a slot each. */
  private val maxSingle = 8
  private val smallest = 64L
  private val slotShift = 3
  private val headerBytes = 6

  private def tagOf(hash: Long): Long = hash & tagMask
  private def isSet(head: Long): Boolean = (head & setBit) != 0
  private def setAt(head: Long): Long = head & addressMask & ~setBit

  private def prefixLength(record: Long): Int = {
    val length = Record.keyLength(record)
    if (length < headerBytes) -1
    else {
      val stated = OffHeap.getInt(null, Record.keyAddress(record) + 2)
      if (stated <= 0 || stated > length - headerBytes) -1 else stated + headerBytes
    }
  }

  /**
   * Returns true if the range from <= key < until has exactly the keys that begin with a prefix which states its own
   * length.
   */
  def serves(from: Array[Byte], until: Array[Byte]): Boolean =
    from.length > headerBytes && until != null &&
      OffHeap.getInt(from, OffHeap.arrayBase + 2) == from.length - headerBytes && isAfter(from, until)

  /** Returns true if `until` is the first key after all keys with the prefix. */
  private def isAfter(prefix: Array[Byte], until: Array[Byte]): Boolean = {
    var last = prefix.length - 1
    while (last >= 0 && prefix(last) == -1) last -= 1
    until.length == last + 1 && last >= 0 && until(last) == (prefix(last) + 1).toByte &&
    java.util.Arrays.equals(prefix, 0, last, until, 0, last)
  }
}
