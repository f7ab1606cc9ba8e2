package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.io.File

import org.apache.spark.unsafe.Platform

/**
 * Finds records by the first part of their keys, for prefix scans: open addressing, 8 bytes a slot as in
 * [[RecentIndex]], a slot for each record. Keys tell themselves how long that part is, as Spark's encoder for
 * prefix scans writes them: after the 2-byte column family 4 bytes, little-endian, with the length of what
 * follows. A key that tells nothing possible is not in it. Many may read it at a time while nobody changes
 * it.
 */
private[incremental] final class PrefixIndex(memory: StoreMemory, spillDirectory: File) {
  import PrefixIndex._

  private var table: Segment = _
  private var mask = 0L
  private var taken = 0L
  private var count = 0L

  def bytes: Long = if (table == null) 0 else table.bytes
  def spilledBytes: Long = if (table != null && table.spilled) table.bytes else 0

  def add(record: Long): Unit = {
    val length = prefixLength(record)
    if (length >= 0) {
      if (table == null || (taken + 1) * 2 > mask + 1) rebuild()
      putFree(record, length)
      count += 1
      taken += 1
    }
  }

  /** Puts a record in the place of another of the same key; adds it when that is not there. */
  def replace(old: Long, record: Long): Unit = {
    val slot = slotOf(old)
    if (slot == 0) add(record) else Platform.putLong(null, slot, (Platform.getLong(null, slot) & tagMask) | record)
  }

  def remove(record: Long): Unit = {
    val slot = slotOf(record)
    if (slot != 0) {
      Platform.putLong(null, slot, deleted)
      count -= 1
    }
  }

  private def slotOf(record: Long): Long = {
    val length = if (table == null) -1 else prefixLength(record)
    if (length < 0) return 0
    val hash = KeyHash.of(null, Record.keyAddress(record), length)
    val wanted = record | tagOf(hash)
    var i = hash & mask
    while (true) {
      val slot = table.address + (i << 3)
      val head = Platform.getLong(null, slot)
      if (head == wanted) return slot
      if (head == 0) return 0
      i = (i + 1) & mask
    }
    0
  }

  private def putFree(record: Long, length: Int): Unit = {
    val hash = KeyHash.of(null, Record.keyAddress(record), length)
    var i = hash & mask
    while (Platform.getLong(null, table.address + (i << 3)) != 0) i = (i + 1) & mask
    Platform.putLong(null, table.address + (i << 3), record | tagOf(hash))
  }

  private def rebuild(): Unit = {
    val old = table
    val oldSlots = if (old == null) 0 else mask + 1
    val capacity = java.lang.Long.highestOneBit(count * 2 + smallest) * 2
    table = memory.allocate(capacity << 3, spillDirectory)
    Platform.setMemory(table.address, 0.toByte, table.bytes)
    mask = capacity - 1
    taken = count
    var i = 0L
    while (i < oldSlots) {
      val head = Platform.getLong(null, old.address + (i << 3))
      val record = head & ~tagMask
      if (head != 0 && head != deleted) putFree(record, prefixLength(record))
      i += 1
    }
    if (old != null) old.free()
  }

  /** Every record whose key begins with that prefix, which [[PrefixIndex.serves]], in no order. */
  def foreach(prefix: Array[Byte])(use: Long => Unit): Unit = if (count > 0) {
    val hash = KeyHash.of(prefix)
    val tag = tagOf(hash)
    var i = hash & mask
    var head = Platform.getLong(null, table.address + (i << 3))
    while (head != 0) {
      if ((head & tagMask) == tag && head != deleted && beginsWith(head & ~tagMask, prefix)) use(head & ~tagMask)
      i = (i + 1) & mask
      head = Platform.getLong(null, table.address + (i << 3))
    }
  }

  private def beginsWith(record: Long, prefix: Array[Byte]): Boolean =
    Record.keyLength(record) >= prefix.length &&
      Bytes.equal(prefix, Platform.BYTE_ARRAY_OFFSET, null, Record.keyAddress(record), prefix.length)

  def free(): Unit = if (table != null) {
    table.free()
    table = null
    count = 0
    taken = 0
  }
}

private[incremental] object PrefixIndex {
  private val tagMask = ~((1L << 48) - 1)
  private val deleted = 1L
  private val smallest = 64L
  private val headerBytes = 6

  private def tagOf(hash: Long): Long = hash & tagMask

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
