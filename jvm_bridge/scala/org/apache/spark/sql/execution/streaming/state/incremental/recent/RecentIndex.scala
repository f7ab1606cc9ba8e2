package org.apache.spark.sql.execution.streaming.state.incremental.recent

import java.io.File

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{OffHeap, Record, Slots, StoreMemory}

/**
 * An index that finds the newest record of a key among many generations: open addressing, 8 bytes a slot (48 bits of
 * the address, 16 bits of the hash). It marks the records that it finds, so that a reader of all records in the order
 * of memory need not look each up. Many threads may read it at a time while none changes it.
 */
private[incremental] final class RecentIndex(memory: StoreMemory, spillDirectory: File) {
  import RecentIndex._

  private var table: Slots = _
  private var mask = 0L
  private var taken = 0L

  /** The number of keys that the index finds, and of those whose newest record is not a removal. */
  var count = 0L
  var present = 0L

  def bytes: Long = if (table == null) 0 else table.bytes
  def spilledBytes: Long = if (table == null) 0 else table.spilledBytes

  /** Returns the newest record of a key; 0 if it has none. */
  def find(hash: Long, key: Array[Byte]): Long = {
    if (count == 0) return 0
    val tag = tagOf(hash.toInt)
    var i = hash & mask
    while (true) {
      val head = OffHeap.getLong(null, table.address(i))
      if (head == 0) return 0
      if ((head & tagMask) == tag && head != deleted && Record.hasKey(head & addressMask, hash.toInt, key)) {
        return head & addressMask
      }
      i = (i + 1) & mask
    }
    0
  }

  def find(hash: Int, keyAt: Long, length: Int): Long = {
    val slot = slotOf(hash, keyAt, length)
    if (slot == 0) 0 else OffHeap.getLong(null, slot) & addressMask
  }

  private def slotOf(hash: Int, keyAt: Long, length: Int): Long = {
    if (count == 0) return 0
    val tag = tagOf(hash)
    var i = hash & mask
    while (true) {
      val slot = table.address(i)
      val head = OffHeap.getLong(null, slot)
      if (head == 0) return 0
      if ((head & tagMask) == tag && head != deleted && Record.hasKey(head & addressMask, hash, keyAt, length))
        return slot
      i = (i + 1) & mask
    }
    0
  }

  /** Returns true if a record is the newest of its key. */
  private[recent] def isNewest(record: Long): Boolean = slotOf(record) != 0

  private def slotOf(record: Long): Long = {
    if (count == 0) return 0
    val hash = Record.hash(record)
    val wanted = record | tagOf(hash)
    var i = hash & mask
    while (true) {
      val slot = table.address(i)
      val head = OffHeap.getLong(null, slot)
      if (head == wanted) return slot
      if (head == 0) return 0
      i = (i + 1) & mask
    }
    0
  }

  /** Returns the bytes that [[reserve]] takes for this many more keys. */
  private[recent] def bytesFor(more: Long): Long =
    if ((taken + more) * 4 > capacity * 3) java.lang.Long.highestOneBit((count + more) * 8 / 5 + smallest) * 2 << 3
    else 0

  /** Makes room for this many more keys; may take memory, or a file, for a larger table. */
  private[recent] def reserve(more: Long): Unit = {
    val room = bytesFor(more)
    if (room > 0) rebuild(room >> 3)
  }

  private def capacity: Long = if (table == null) 0 else mask + 1

  private def rebuild(newCapacity: Long): Unit = {
    val grown = Slots.zeros(newCapacity, slotShift, memory, spillDirectory)
    val old = table
    val oldCapacity = capacity
    table = grown
    mask = newCapacity - 1
    taken = count
    var i = 0L
    while (i < oldCapacity) {
      val head = OffHeap.getLong(null, old.address(i))
      if (head != 0 && head != deleted) OffHeap.putLong(null, freeSlot(Record.hash(head & addressMask)), head)
      i += 1
    }
    if (old != null) old.free()
  }

  private def freeSlot(hash: Int): Long = {
    var i = hash & mask
    while (OffHeap.getLong(null, table.address(i)) != 0) i = (i + 1) & mask
    table.address(i)
  }

  /**
   * Reads the memory that [[put]] of a record, or a search, reads first. Several such reads wait for memory at the same
   * time, while the searches of several puts would wait one after the other.
   *
   * @return a value without a meaning, so that the compiler does not remove the reads
   */
  def prefetch(record: Long): Int = {
    val head = if (count == 0) 0L else OffHeap.getLong(null, table.address(Record.hash(record) & mask))
    if (head == 0 || head == deleted) 0 else Record.hash(head & addressMask)
  }

  /**
   * Makes a record the newest of its key; [[reserve]] must have been called.
   *
   * @return the newest record before; 0 if there was none
   */
  private[recent] def put(record: Long): Long = {
    val hash = Record.hash(record)
    val slot = slotOf(hash, Record.keyAddress(record), Record.keyLength(record))
    val old = if (slot == 0) 0L else OffHeap.getLong(null, slot) & addressMask
    if (slot == 0) {
      OffHeap.putLong(null, freeSlot(hash), record | tagOf(hash))
      count += 1
      taken += 1
    } else {
      if (!Record.isRemoved(old)) present -= 1
      Record.unmark(old)
      OffHeap.putLong(null, slot, record | tagOf(hash))
    }
    Record.mark(record)
    if (!Record.isRemoved(record)) present += 1
    old
  }

  /**
   * Undoes [[put]] of a record that is the newest of its key.
   *
   * @param old the record that becomes the newest; 0: none
   */
  private[recent] def takeBack(record: Long, old: Long): Unit = {
    val slot = slotOf(record)
    if (slot == 0) throw new InconsistentStateException(s"A record of ${Record.size(record)} bytes is not in the index")
    if (!Record.isRemoved(record)) present -= 1
    Record.unmark(record)
    if (old == 0) {
      OffHeap.putLong(null, slot, deleted)
      count -= 1
    } else {
      OffHeap.putLong(null, slot, old | tagOf(Record.hash(old)))
      Record.mark(old)
      if (!Record.isRemoved(old)) present += 1
    }
  }

  /** Makes a copy take the place of a record that is the newest of its key. */
  private[recent] def move(record: Long, copy: Long): Unit =
    OffHeap.putLong(null, slotOf(record), copy | tagOf(Record.hash(copy)))

  /** Forgets a record if it is the newest of its key; then the index finds nothing for the key. */
  private[recent] def remove(record: Long): Unit = {
    val slot = slotOf(record)
    if (slot != 0) {
      OffHeap.putLong(null, slot, deleted)
      count -= 1
      if (!Record.isRemoved(record)) present -= 1
    }
  }

  /** The number of slots, for [[at]]. */
  def size: Long = capacity

  /** Returns the record in a slot; 0 if there is none. */
  def at(i: Long): Long = {
    val head = OffHeap.getLong(null, table.address(i))
    if (head == deleted) 0 else head & addressMask
  }

  private[recent] def free(): Unit = if (table != null) {
    table.free()
    table = null
    count = 0
    present = 0
    taken = 0
  }
}

private[incremental] object RecentIndex {
  private val addressMask = (1L << 48) - 1
  private val tagMask = ~addressMask
  private val deleted = 1L
  private val smallest = 128L
  private val slotShift = 3

  /** The number of records that are worth reading ahead at the same time. */
  val prefetchedAtOnce = 64

  private def tagOf(hash: Int): Long = (hash >>> 16).toLong << 48
}

/**
 * An error that says that the memory of a store contradicts itself: a defect of this program or of the machine. Nothing
 * of this memory may be used.
 */
private[incremental] final class InconsistentStateException(message: String) extends IllegalStateException(message)
