package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.io.File

// The index of records by prefix, and the sets of records and tables of slots that it is made of.

/**
 * An index of records by the first part of their keys, for prefix scans. Keys state the length of that part, as Spark's
 * encoder for prefix scans writes them: after the 2-byte column family 4 bytes, little-endian, with the length. A key
 * with an impossible length is not in the index, nor is one with length zero: no prefix is empty, but keys of other
 * encoders may begin with zeros. Any number of threads may read it while no thread changes it.
 *
 * Open addressing, 8 bytes a slot: 16 bits of the prefix's hash and the address of a record, so that each of the few
 * records of a prefix takes a slot, next to the others. A prefix of more records has a set and one slot, whose lowest
 * bit is set: the time to find a record does not depend on the number of records. A slot is:
 * {{{
 *   bits 48 to 63      bits 1 to 47              bit 0
 *   0                  0                         0      free
 *   of the hash        address of a record       0      a record (addresses are even)
 *   of the hash        address of a set          1      the set of the records of a prefix
 *   0                  0                         1      deleted
 * }}}
 */
private[incremental] final class PrefixIndex(memory: StoreMemory, spillDirectory: File) {
  import PrefixIndex._

  private val sets = new RecordSets(memory, spillDirectory)
  private var table: Slots = _
  private var mask = 0L

  /** Number of slots that are not free, and of those that hold a record or a set. */
  private var takenSlots = 0L
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
      if (table == null || (takenSlots + 1) * 2 > mask + 1) rebuild()
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
        if (free < 0) takenSlots += 1
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
      var hasSet = false
      foreachSlot(hash, null, at, length) { slot =>
        OffHeap.putLong(null, slot, if (hasSet) deleted else set)
        hasSet = true
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
    takenSlots = live
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
    takenSlots = 0
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
    val unusedSet = unused(size)
    val bytes = headerBytes + 8L * slotCount
    val set = if (unusedSet == 0) arena.allocate(bytes) else unusedSet
    if (unusedSet != 0) unused(size) = OffHeap.getLong(null, unusedSet)
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
    var other = OffHeap.getLong(null, set + headerBytes + 8L * i)
    while (other != 0 && other != record) {
      i = (i + 1) & mask
      other = OffHeap.getLong(null, set + headerBytes + 8L * i)
    }
    if (other == 0) 0 else set + headerBytes + 8L * i
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

/**
 * A table of slots of equal size outside the heap, found by number. It lies in pieces of at most
 * [[StoreMemory.largestPieceBytes]] each, some in the budget and others in files: so it may be larger than a piece can
 * be. Any number of threads may read it.
 *
 * @param capacity number of slots
 * @param slotShift binary logarithm of the bytes of a slot
 */
private[incremental] final class Slots private (pieces: Array[Segment], val capacity: Long, slotShift: Int,
    pieceShift: Int) {
  private val starts = pieces.map(_.address)
  private val pieceMask = (1L << pieceShift) - 1

  def bytes: Long = capacity << slotShift
  def spilledBytes: Long = pieces.iterator.filter(_.spilled).map(_.bytes).sum

  /** Returns the address of a slot. */
  def address(i: Long): Long = starts((i >>> pieceShift).toInt) + ((i & pieceMask) << slotShift)

  /** Number of pieces, and the addresses at which each begins and ends: whole slots. */
  def pieceCount: Int = pieces.length
  def pieceStart(i: Int): Long = pieces(i).address
  def pieceEnd(i: Int): Long = pieces(i).address + pieces(i).bytes

  /** Sets all bytes to 0. */
  def clear(): Unit = pieces.foreach(piece => OffHeap.setMemory(piece.address, 0.toByte, piece.bytes))

  def free(): Unit = pieces.foreach(_.free())
}

private[incremental] object Slots {

  /** Allocates slots with any content. If it throws, for lack of memory, nothing is taken. */
  def allocate(capacity: Long, slotShift: Int, memory: StoreMemory, spillDirectory: File): Slots = {
    val pieceShift =
      java.lang.Long.numberOfTrailingZeros(java.lang.Long.highestOneBit(memory.largestPieceBytes)) - slotShift
    val pieceSlots = 1L << pieceShift
    val pieces = new Array[Segment](Math.toIntExact((capacity + pieceSlots - 1) / pieceSlots))
    try {
      for (i <- pieces.indices) {
        pieces(i) = memory.allocate(math.min(pieceSlots, capacity - i * pieceSlots) << slotShift, spillDirectory)
      }
      new Slots(pieces, capacity, slotShift, pieceShift)
    } catch {
      case e: Throwable =>
        pieces.foreach(piece => if (piece != null) piece.free())
        throw e
    }
  }

  /** Allocates slots full of zeros. */
  def zeros(capacity: Long, slotShift: Int, memory: StoreMemory, spillDirectory: File): Slots = {
    val slots = allocate(capacity, slotShift, memory, spillDirectory)
    slots.clear()
    slots
  }
}
