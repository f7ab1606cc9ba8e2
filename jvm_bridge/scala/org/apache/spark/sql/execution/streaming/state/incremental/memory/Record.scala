package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.io.File
import java.lang.Long.{compareUnsigned, reverseBytes}

import org.apache.spark.sql.execution.streaming.state.StateStoreErrors

// A row in memory: its layout, lists of rows, the limits of rows, and byte strings in arrays and outside the heap.

/**
 * The layout of a row in memory, at an address that is a multiple of 8, in native byte order:
 * - 4 bytes low half of the key's hash
 * - 4 bytes length of the key
 * - 4 bytes length of the value, or [[removed]]
 * - 4 bytes room for the value, and in the highest bit the mark of the newest record of its key
 * - the key, the value
 */
private[incremental] object Record {
  val headerBytes = 16

  /** The value's length of a removed key. */
  val removed: Int = -1
  private val marked = 1 << 31

  def size(keyLength: Int, valueRoom: Int): Long = (headerBytes.toLong + keyLength + valueRoom + 7) & ~7L

  def hash(record: Long): Int = OffHeap.getInt(null, record)
  def keyLength(record: Long): Int = OffHeap.getInt(null, record + 4)
  def valueLength(record: Long): Int = OffHeap.getInt(null, record + 8)
  def valueRoom(record: Long): Int = OffHeap.getInt(null, record + 12) & ~marked
  def keyAddress(record: Long): Long = record + headerBytes
  def valueAddress(record: Long): Long = record + headerBytes + keyLength(record)
  def isRemoved(record: Long): Boolean = valueLength(record) == removed

  def size(record: Long): Long = size(keyLength(record), valueRoom(record))

  def key(record: Long): Array[Byte] = Bytes.array(keyAddress(record), keyLength(record))
  def value(record: Long): Array[Byte] = Bytes.array(valueAddress(record), valueLength(record))

  def setHeader(record: Long, hash: Int, keyLength: Int, valueLength: Int, valueRoom: Int): Unit = {
    OffHeap.putInt(null, record, hash)
    OffHeap.putInt(null, record + 4, keyLength)
    OffHeap.putInt(null, record + 8, valueLength)
    OffHeap.putInt(null, record + 12, valueRoom)
  }

  def setValueLength(record: Long, length: Int): Unit = OffHeap.putInt(null, record + 8, length)

  /** Returns true if the record is marked as the newest of its key; a new record is not. */
  def isMarked(record: Long): Boolean = OffHeap.getInt(null, record + 12) < 0

  def mark(record: Long): Unit = OffHeap.putInt(null, record + 12, OffHeap.getInt(null, record + 12) | marked)

  def unmark(record: Long): Unit = OffHeap.putInt(null, record + 12, valueRoom(record))

  def hasKey(record: Long, hash: Int, key: Array[Byte]): Boolean =
    OffHeap.getInt(null, record) == hash && keyLength(record) == key.length &&
      Bytes.equal(key, OffHeap.arrayBase, null, keyAddress(record), key.length)

  def hasKey(record: Long, hash: Int, keyAt: Long, length: Int): Boolean =
    OffHeap.getInt(null, record) == hash && keyLength(record) == length &&
      Bytes.equal(null, keyAt, null, keyAddress(record), length)

  /** Returns true if from <= key < until (null: no end). */
  def within(record: Long, from: Array[Byte], until: Array[Byte]): Boolean =
    Bytes.compare(from, keyAddress(record), keyLength(record)) <= 0 &&
      (until == null || Bytes.compare(until, keyAddress(record), keyLength(record)) > 0)

  def compare(a: Long, b: Long): Int =
    Bytes.compare(null, keyAddress(a), keyLength(a), null, keyAddress(b), keyLength(b))
}

/** A list of records on the heap that grows. One thread. */
private[incremental] final class RecordList {
  private var records = new Array[Long](16)
  private var count = 0

  def size: Int = count
  def apply(i: Int): Long = records(i)
  def isEmpty: Boolean = count == 0

  def add(record: Long): Unit = {
    if (count == records.length) records = java.util.Arrays.copyOf(records, count * 2)
    records(count) = record
    count += 1
  }

  def foreach(use: Long => Unit): Unit = {
    var i = 0
    while (i < count) {
      use(records(i))
      i += 1
    }
  }

  /** Returns the records as they were added, in an array of their own. */
  def toArray: Array[Long] = java.util.Arrays.copyOf(records, count)

  /** Returns the records in key order, in an array of their own. */
  def sorted(): Array[Long] = {
    val copy = toArray
    KeyOrder.sort(copy, count)
    copy
  }

  /** Returns the records in key order, sorted as they are read if they are many. The list is not used any more. */
  def inOrder(): OrderedRecords =
    if (isEmpty) OrderedRecords.none
    else if (count > PartlySorted.maxAtOnce) new PartlySorted(java.util.Arrays.copyOf(records, count))
    else {
      KeyOrder.sort(records, count)
      asTheyAre
    }

  /** Returns the records as they were added, in key order. The list is not changed any more. */
  private[memory] def asTheyAre: OrderedRecords = new SortedRecords(records(_), 0, count, null, _ => true)

  def clear(): Unit = count = 0
}

/** A list of records outside the heap that is read once: at its end it is freed and empty. One thread. */
private[incremental] final class RecordSpool(memory: StoreMemory, spillDirectory: File) {
  private val arena = new Arena(memory, spillDirectory)
  private var segment = -1
  private var at = 0L
  private var end = 0L

  def isEmpty: Boolean = arena.segmentCount == 0
  def bytes: Long = arena.bytes
  def spilledBytes: Long = arena.spilledBytes

  /** Adds a record. No record is added after the first [[next]]. */
  def add(record: Long): Unit = OffHeap.putLong(null, arena.allocate(8), record)

  /** Returns the next record, in the order in which they were added, or 0 at the end. */
  def next(): Long = {
    while (at == end && segment + 1 < arena.segmentCount) {
      segment += 1
      at = arena.segmentStart(segment)
      end = arena.segmentEnd(segment)
    }
    if (at == end) 0
    else {
      at += 8
      OffHeap.getLong(null, at - 8)
    }
  }

  /** Passes the remaining records to a function. */
  def foreach(use: Long => Unit): Unit = {
    var record = next()
    while (record != 0) {
      use(record)
      record = next()
    }
  }

  def free(): Unit = {
    arena.free()
    segment = -1
    at = 0
    end = 0
  }
}

/**
 * The limits of rows. A reader has a block of a file in one array, and a buffer for keys that grows: so a store takes
 * only rows that can be read, and lengths that are added or doubled stay within an Int.
 */
private[incremental] object RowSizes {

  /** Bytes of a key, its column family included. The end of a file holds the last key up to three times. */
  val maxKeyBytes: Int = 256 << 20

  /** Bytes of a key with its value; the rest of an array is for the other content of a block. */
  val maxBytes: Int = Int.MaxValue - (1 << 20)

  /** The longest array that every JVM has. */
  private val maxArrayBytes = Int.MaxValue - 16

  /** Returns true if a row of that key and that value can be read. */
  def canBeRead(keyBytes: Long, valueBytes: Long): Boolean =
    keyBytes <= maxKeyBytes && keyBytes + valueBytes <= maxBytes

  /**
   * Refuses a row that could not be read.
   *
   * @param operation the calling operation, for the message
   * @throws StateStoreUnsupportedOperationException if the key or the row is too long
   */
  def check(operation: String, keyBytes: Long, valueBytes: Long): Unit =
    if (!canBeRead(keyBytes, valueBytes)) {
      throw StateStoreErrors.unsupportedOperationException(operation,
        s"a key of $keyBytes bytes and a value of " +
          s"$valueBytes: a key of the incremental state store has at most $maxKeyBytes bytes, and a key with its value at " +
          s"most $maxBytes. Divide the row: let the key be a hash, or the values of a key be several rows")
    }

  /** Returns the length of a buffer that grows to this many bytes: twice as many, if an array can be as long. */
  def doubled(bytes: Int): Int = math.max(bytes, math.min(bytes * 2L, maxArrayBytes.toLong).toInt)
}

/**
 * Byte strings in arrays and outside the heap, compared 8 bytes at a time. A place is an object and an offset as Unsafe
 * takes them: a byte array and an offset from its base, or null and an address. Little-endian machines only, as all of
 * Spark's UnsafeRow.
 */
private[incremental] object Bytes {
  /** Returns a copy of bytes outside the heap. */
  def array(address: Long, length: Int): Array[Byte] = {
    val copy = new Array[Byte](length)
    OffHeap.copyMemory(null, address, copy, OffHeap.arrayBase, length)
    copy
  }

  /** Copies an array to an address. */
  def put(from: Array[Byte], address: Long): Unit = OffHeap.copyMemory(from, OffHeap.arrayBase, null, address,
    from.length)

  def equal(a: AnyRef, aAt: Long, b: AnyRef, bAt: Long, length: Int): Boolean = {
    var i = 0
    while (i + 8 <= length) {
      if (OffHeap.getLong(a, aAt + i) != OffHeap.getLong(b, bAt + i)) return false
      i += 8
    }
    while (i < length) {
      if (OffHeap.getByte(a, aAt + i) != OffHeap.getByte(b, bAt + i)) return false
      i += 1
    }
    true
  }

  /** Compares in the order of RocksDB's bytewise comparator: unsigned bytes, a prefix before its extensions. */
  def compare(a: AnyRef, aAt: Long, aLength: Int, b: AnyRef, bAt: Long, bLength: Int): Int = {
    val common = math.min(aLength, bLength)
    var i = 0
    while (i + 8 <= common) {
      val x = OffHeap.getLong(a, aAt + i)
      val y = OffHeap.getLong(b, bAt + i)
      if (x != y) return compareUnsigned(reverseBytes(x), reverseBytes(y))
      i += 8
    }
    while (i < common) {
      val d = (OffHeap.getByte(a, aAt + i) & 0xff) - (OffHeap.getByte(b, bAt + i) & 0xff)
      if (d != 0) return d
      i += 1
    }
    aLength - bLength
  }

  def compare(a: Array[Byte], bAt: Long, bLength: Int): Int = compare(a, OffHeap.arrayBase, a.length, null, bAt,
    bLength)

  /** Returns the length of the common prefix. */
  def common(a: Long, aLength: Int, b: Long, bLength: Int): Int = {
    val limit = math.min(aLength, bLength)
    var i = 0
    while (i + 8 <= limit) {
      val difference = OffHeap.getLong(null, a + i) ^ OffHeap.getLong(null, b + i)
      if (difference != 0) return i + (java.lang.Long.numberOfTrailingZeros(difference) >> 3)
      i += 8
    }
    while (i < limit && OffHeap.getByte(null, a + i) == OffHeap.getByte(null, b + i)) i += 1
    i
  }

  /** Returns the number of bytes that a key, from an index on, has in common with those at an address. */
  def common(key: Array[Byte], from: Int, b: Long, bLength: Int): Int = {
    val limit = math.min(key.length - from, bLength)
    val a = OffHeap.arrayBase.toLong + from
    var i = 0
    while (i + 8 <= limit) {
      val difference = OffHeap.getLong(key, a + i) ^ OffHeap.getLong(null, b + i)
      if (difference != 0) return i + (java.lang.Long.numberOfTrailingZeros(difference) >> 3)
      i += 8
    }
    while (i < limit && OffHeap.getByte(key, a + i) == OffHeap.getByte(null, b + i)) i += 1
    i
  }

  /** Returns the 8 bytes at a depth of a byte string as a big-endian word, with zeros past its end. */
  def word(address: Long, length: Int, depth: Int): Long = word(null, address, length, depth)

  /** Returns the same word of a byte string at any place. */
  def word(of: AnyRef, at: Long, length: Int, depth: Int): Long = {
    val restLength = length - depth
    if (restLength >= 8) reverseBytes(OffHeap.getLong(of, at + depth))
    else {
      var word = 0L
      var i = 0
      while (i < restLength) {
        word |= (OffHeap.getByte(of, at + depth + i) & 0xffL) << (56 - 8 * i)
        i += 1
      }
      word
    }
  }
}
