package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.lang.Long.{compareUnsigned, reverseBytes}

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
    val left = length - depth
    if (left >= 8) reverseBytes(OffHeap.getLong(of, at + depth))
    else {
      var word = 0L
      var i = 0
      while (i < left) {
        word |= (OffHeap.getByte(of, at + depth + i) & 0xffL) << (56 - 8 * i)
        i += 1
      }
      word
    }
  }
}
