package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.io.File

import org.apache.spark.unsafe.Platform

/**
 * Finds records by the first part of their keys, for prefix scans. Keys tell themselves how long that part is,
 * as Spark's encoder for prefix scans writes them: after the 2-byte column family 4 bytes, little-endian, with
 * the length of what follows. A key that tells nothing possible is not in it. Many may read it at a time while
 * nobody changes it.
 *
 * Open addressing with a slot of 8 bytes for each prefix: 16 bits of its hash, and the address of its only
 * record or, with the lowest bit set, of the set of its records.
 */
private[incremental] final class PrefixIndex(memory: StoreMemory, spillDirectory: File) {
  import PrefixIndex._

  private val sets = new RecordSets(memory, spillDirectory)
  private var table: Segment = _
  private var mask = 0L
  private var taken = 0L
  private var prefixes = 0L

  def bytes: Long = sets.bytes + (if (table == null) 0 else table.bytes)
  def spilledBytes: Long = sets.spilledBytes + (if (table != null && table.spilled) table.bytes else 0)

  /** Adds a record that is not in it. When it throws, for there is no memory, nothing has changed. */
  def add(record: Long): Unit = {
    val length = prefixLength(record)
    if (length >= 0) {
      if (table == null || (taken + 1) * 2 > mask + 1) rebuild()
      val at = Record.keyAddress(record)
      val hash = SlotHash.of(null, at, length)
      val slot = slotOf(hash, null, at, length)
      val head = Platform.getLong(null, slot)
      if (head == 0) {
        prefixes += 1
        taken += 1
        Platform.putLong(null, slot, record | tagOf(hash))
      } else {
        val set = if (isSet(head)) sets.add(setAt(head), record) else sets.of(head & addressMask, record)
        Platform.putLong(null, slot, set | setBit | tagOf(hash))
      }
    }
  }

  /** Puts a record in the place of another of the same key; adds it when that is not there. */
  def replace(old: Long, record: Long): Unit = {
    val slot = slotOf(record)
    if (slot != 0) {
      val head = Platform.getLong(null, slot)
      if (head == 0) add(record)
      else if (isSet(head)) {
        val set = sets.replace(setAt(head), old, record)
        Platform.putLong(null, slot, set | setBit | (head & tagMask))
      } else if ((head & addressMask) == old) Platform.putLong(null, slot, record | (head & tagMask))
      else add(record)
    } else add(record)
  }

  def remove(record: Long): Unit = {
    val slot = slotOf(record)
    val head = if (slot == 0) 0 else Platform.getLong(null, slot)
    if (head != 0) {
      if (!isSet(head)) { if ((head & addressMask) == record) forget(slot) }
      else if (sets.remove(setAt(head), record) && sets.size(setAt(head)) == 1) {
        Platform.putLong(null, slot, sets.any(setAt(head)) | (head & tagMask))
        sets.discard(setAt(head))
      }
    }
  }

  private def forget(slot: Long): Unit = {
    Platform.putLong(null, slot, deleted)
    prefixes -= 1
  }

  /** The slot of a record's prefix, 0 when there is none at all, a free one when the prefix has none. */
  private def slotOf(record: Long): Long = {
    val length = if (table == null) -1 else prefixLength(record)
    if (length < 0) 0
    else {
      val at = Record.keyAddress(record)
      slotOf(SlotHash.of(null, at, length), null, at, length)
    }
  }

  private def slotOf(hash: Long, prefix: AnyRef, prefixAt: Long, length: Int): Long = {
    val tag = tagOf(hash)
    var i = hash & mask
    var slot = table.address + (i << 3)
    var head = Platform.getLong(null, slot)
    while (head != 0 && !((head & tagMask) == tag && head != deleted && hasPrefix(head, prefix, prefixAt, length))) {
      i = (i + 1) & mask
      slot = table.address + (i << 3)
      head = Platform.getLong(null, slot)
    }
    slot
  }

  private def hasPrefix(head: Long, prefix: AnyRef, prefixAt: Long, length: Int): Boolean = {
    val record = someRecord(head)
    Record.keyLength(record) >= length && Bytes.equal(prefix, prefixAt, null, Record.keyAddress(record), length)
  }

  private def someRecord(head: Long): Long = if (isSet(head)) sets.any(setAt(head)) else head & addressMask

  private def rebuild(): Unit = {
    val old = table
    val oldSlots = if (old == null) 0 else mask + 1
    val capacity = java.lang.Long.highestOneBit(prefixes * 2 + smallest) * 2
    table = memory.allocate(capacity << 3, spillDirectory)
    Platform.setMemory(table.address, 0.toByte, table.bytes)
    mask = capacity - 1
    taken = prefixes
    var i = 0L
    while (i < oldSlots) {
      val head = Platform.getLong(null, old.address + (i << 3))
      if (head != 0 && head != deleted) putFree(head)
      i += 1
    }
    if (old != null) old.free()
  }

  private def putFree(head: Long): Unit = {
    val record = someRecord(head)
    var i = SlotHash.of(null, Record.keyAddress(record), prefixLength(record)) & mask
    while (Platform.getLong(null, table.address + (i << 3)) != 0) i = (i + 1) & mask
    Platform.putLong(null, table.address + (i << 3), head)
  }

  /** Every record whose key begins with that prefix, which [[PrefixIndex.serves]], in no order. */
  def foreach(prefix: Array[Byte])(use: Long => Unit): Unit = if (table != null) {
    val head = Platform.getLong(null, slotOf(SlotHash.of(prefix), prefix, Platform.BYTE_ARRAY_OFFSET, prefix.length))
    if (isSet(head)) sets.foreach(setAt(head))(use)
    else if (head != 0) use(head & addressMask)
  }

  def free(): Unit = {
    sets.free()
    if (table != null) table.free()
    table = null
    mask = 0
    taken = 0
    prefixes = 0
  }
}

private[incremental] object PrefixIndex {
  private val addressMask = (1L << 48) - 1
  private val tagMask = ~addressMask
  private val setBit = 1L

  /** The bit of a set without a set. */
  private val deleted = 1L
  private val smallest = 64L
  private val headerBytes = 6

  private def tagOf(hash: Long): Long = hash & tagMask
  private def isSet(head: Long): Boolean = (head & setBit) != 0
  private def setAt(head: Long): Long = head & addressMask & ~setBit

  private def prefixLength(record: Long): Int = {
    val length = Record.keyLength(record)
    if (length < headerBytes) -1
    else {
      val told = Platform.getInt(null, Record.keyAddress(record) + 2)
      if (told < 0 || told > length - headerBytes) -1 else told + headerBytes
    }
  }

  /** Whether from <= key < until is all that begins with a prefix that tells its own length. */
  def serves(from: Array[Byte], until: Array[Byte]): Boolean =
    from.length >= headerBytes && until != null &&
      Platform.getInt(from, Platform.BYTE_ARRAY_OFFSET + 2) == from.length - headerBytes && isAfter(from, until)

  /** Whether until is the first key after all that begin with the prefix. */
  private def isAfter(prefix: Array[Byte], until: Array[Byte]): Boolean = {
    var last = prefix.length - 1
    while (last >= 0 && prefix(last) == -1) last -= 1
    until.length == last + 1 && last >= 0 && until(last) == (prefix(last) + 1).toByte &&
      java.util.Arrays.equals(prefix, 0, last, until, 0, last)
  }
}
