package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.io.File

/**
 * Sets of records by their addresses, in one arena. The memory of a set that grew or ended serves others of its size. A
 * set is known by its address, which changes when the set grows. Any number of threads may read while no thread changes
 * a set.
 *
 * A set is 4 bytes number of slots (a power of two), 4 bytes number of slots that are not free, 4 bytes number of
 * records, 4 bytes index of the slot of one of them, then 8 bytes a slot: a record, 0 (free), or 1 (a record was
 * removed). A small set has its records one after the other; a larger one finds them by their addresses.
 */
private[memory] final class RecordSets(memory: StoreMemory, spillDirectory: File) {
  import RecordSets._

  private val arena = new Arena(memory, spillDirectory)

  /** For each binary logarithm of a size an unused set; each leads to the next. */
  private val unused = new Array[Long](31)

  def bytes: Long = arena.bytes
  def spilledBytes: Long = arena.spilledBytes

  /** Makes a set of records. If it throws nothing has changed. */
  def of(records: RecordList): Long = {
    val set = allocate(slotsFor(records.size))
    records.foreach(insert(set, _))
    set
  }

  def size(set: Long): Int = OffHeap.getInt(null, set + 8)

  /**
   * Adds a record that is not in the set. If it throws nothing has changed.
   *
   * @return the set's address afterwards
   */
  def add(set: Long, record: Long): Long = {
    val full = (taken(set) + 1L) * 4 > slots(set) * 3L
    val sparse = slots(set) > smallestSlots && (size(set) + 1L) * 8 < slots(set)
    val roomy = if (full || sparse) moved(set) else set
    insert(roomy, record)
    roomy
  }

  /** Removes a record. Returns true if it was in the set. */
  def remove(set: Long, record: Long): Boolean = {
    val slot = slotOf(set, record)
    if (slot != 0) {
      OffHeap.putLong(null, slot, removed)
      OffHeap.putInt(null, set + 8, size(set) - 1)
      if (slot == shown(set) && size(set) > 0) showNext(set)
    }
    slot != 0
  }

  /**
   * Adds a record that is not in the set, and removes another if it is.
   *
   * @return the set's address afterwards
   */
  def replace(set: Long, old: Long, record: Long): Long = {
    val slot = if (slots(set) <= smallSlots) slotOf(set, old) else 0
    if (slot != 0) {
      OffHeap.putLong(null, slot, record)
      set
    } else {
      val added = add(set, record)
      remove(added, old)
      added
    }
  }

  def foreach(set: Long)(use: Long => Unit): Unit = {
    var slot = set + headerBytes
    val end = slot + 8L * slots(set)
    while (slot < end) {
      val record = OffHeap.getLong(null, slot)
      if (record > removed) use(record)
      slot += 8
    }
  }

  /** Returns some record of a set that is not empty. */
  def any(set: Long): Long = OffHeap.getLong(null, shown(set))

  private def shown(set: Long): Long = set + headerBytes + 8L * OffHeap.getInt(null, set + 12)

  private def showNext(set: Long): Unit = {
    val mask = slots(set) - 1
    var i = OffHeap.getInt(null, set + 12)
    while (OffHeap.getLong(null, set + headerBytes + 8L * i) <= removed) i = (i + 1) & mask
    OffHeap.putInt(null, set + 12, i)
  }

  /** Ends a set: its memory serves others. */
  def discard(set: Long): Unit = {
    val size = sizeClass(slots(set))
    OffHeap.putLong(null, set, unused(size))
    unused(size) = set
  }

  def free(): Unit = {
    arena.free()
    java.util.Arrays.fill(unused, 0)
  }

  private def slots(set: Long): Int = OffHeap.getInt(null, set)
  private def taken(set: Long): Int = OffHeap.getInt(null, set + 4)

  private def moved(set: Long): Long = {
    val larger = allocate(slotsFor(size(set)))
    foreach(set)(insert(larger, _))
    discard(set)
    larger
  }

  private def allocate(slotCount: Int): Long = {
    val size = sizeClass(slotCount)
    val known = unused(size)
    val bytes = headerBytes + 8L * slotCount
    val set = if (known == 0) arena.allocate(bytes) else known
    if (known != 0) unused(size) = OffHeap.getLong(null, known)
    OffHeap.setMemory(set, 0.toByte, bytes)
    OffHeap.putInt(null, set, slotCount)
    set
  }

  private def insert(set: Long, record: Long): Unit = {
    val mask = slots(set) - 1
    var i = firstSlot(mask, record)
    while (OffHeap.getLong(null, set + headerBytes + 8L * i) != 0) i = (i + 1) & mask
    OffHeap.putLong(null, set + headerBytes + 8L * i, record)
    OffHeap.putInt(null, set + 4, taken(set) + 1)
    OffHeap.putInt(null, set + 8, size(set) + 1)
    OffHeap.putInt(null, set + 12, i)
  }

  private def slotOf(set: Long, record: Long): Long = {
    val mask = slots(set) - 1
    var i = firstSlot(mask, record)
    var found = OffHeap.getLong(null, set + headerBytes + 8L * i)
    while (found != 0 && found != record) {
      i = (i + 1) & mask
      found = OffHeap.getLong(null, set + headerBytes + 8L * i)
    }
    if (found == 0) 0 else set + headerBytes + 8L * i
  }
}

private object RecordSets {
  private val headerBytes = 16L
  private val smallestSlots = 4
  private val smallSlots = 32
  private val removed = 1L

  private def slotsFor(records: Int): Int = math.max(smallestSlots, Integer.highestOneBit(records) * 4)

  private def sizeClass(slots: Int): Int = Integer.numberOfTrailingZeros(slots)

  private def firstSlot(mask: Int, record: Long): Int = if (mask < smallSlots) 0 else place(record) & mask

  /**
   * Returns a hash of an address. Addresses are multiples of 8 that follow each other: the upper bits of a product
   * spread them.
   */
  private def place(record: Long): Int = ((record >>> 3) * 0x9E3779B97F4A7C15L >>> 33).toInt
}
