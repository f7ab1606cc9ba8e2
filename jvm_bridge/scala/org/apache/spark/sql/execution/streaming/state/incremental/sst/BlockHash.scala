package org.apache.spark.sql.execution.streaming.state.incremental.sst

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{OffHeap, Xxh3}

/**
 * XXH3 of 64 bits as of xxHash 0.8, seed 0: what RocksDB protects blocks with unless it is told to use CRC-32C. (Its
 * filters use an older one, `KeyHash`.) For 9 bytes and more: no block is shorter.
 */
private[sst] object BlockHash {
  private val leastBytes = 9

  private val Prime32_1 = 0x9E3779B1L
  private val Prime32_2 = 0x85EBCA77L
  private val Prime32_3 = 0xC2B2AE3DL
  private val Prime64_1 = 0x9E3779B185EBCA87L
  private val Prime64_2 = 0xC2B2AE3D27D4EB4FL
  private val Prime64_3 = 0x165667B19E3779F9L
  private val Prime64_4 = 0x85EBCA77C2B2AE63L
  private val Prime64_5 = 0x27D4EB2F165667C5L
  private val PrimeMix = 0x165667919E3779F9L
  private val stripeBytes = 64
  private val stripesPerBlock = 16

  private def secret(offset: Int): Long = OffHeap.getLong(Xxh3.published, OffHeap.arrayBase + offset)

  /** The hash of this many bytes of an array from an index on. */
  def of(bytes: Array[Byte], from: Int, length: Int): Long = {
    val at = OffHeap.arrayBase.toLong + from
    if (length < leastBytes) throw new UnsupportedSstException(s"A block of $length bytes has no entry")
    if (length > 240) long(bytes, at, length)
    else if (length > 128) upTo240(bytes, at, length)
    else if (length > 16) upTo128(bytes, at, length)
    else upTo16(bytes, at, length)
  }

  private def upTo16(bytes: Array[Byte], at: Long, length: Int): Long = {
    val low = OffHeap.getLong(bytes, at) ^ secret(24) ^ secret(32)
    val high = OffHeap.getLong(bytes, at + length - 8) ^ secret(40) ^ secret(48)
    avalanche(length + java.lang.Long.reverseBytes(low) + high + fold(low, high))
  }

  private def upTo128(bytes: Array[Byte], at: Long, length: Int): Long = {
    var sum = length * Prime64_1
    var i = (length - 1) / 32
    while (i >= 0) {
      sum += mix(bytes, at + 16 * i, 32 * i)
      sum += mix(bytes, at + length - 16 * (i + 1), 32 * i + 16)
      i -= 1
    }
    avalanche(sum)
  }

  private def upTo240(bytes: Array[Byte], at: Long, length: Int): Long = {
    var sum = length * Prime64_1
    var i = 0
    while (i < 8) {
      sum += mix(bytes, at + 16 * i, 16 * i)
      i += 1
    }
    sum = avalanche(sum)
    while (i < length / 16) {
      sum += mix(bytes, at + 16 * i, 16 * (i - 8) + 3)
      i += 1
    }
    avalanche(sum + mix(bytes, at + length - 16, 136 - 17))
  }

  private def long(bytes: Array[Byte], at: Long, length: Int): Long = {
    val acc = Array(Prime32_3, Prime64_1, Prime64_2, Prime64_3, Prime64_4, Prime32_2, Prime64_5, Prime32_1)
    val stripes = (length - 1) / stripeBytes
    var s = 0
    while (s < stripes) {
      val n = math.min(stripesPerBlock, stripes - s)
      accumulate(acc, bytes, at + stripeBytes.toLong * s, n)
      if (n == stripesPerBlock) scramble(acc)
      s += n
    }
    accumulateAt(acc, bytes, at + length - stripeBytes, 192 - 64 - 7)
    var sum = length * Prime64_1
    var i = 0
    while (i < 8) {
      sum += fold(acc(i) ^ secret(11 + 8 * i), acc(i + 1) ^ secret(19 + 8 * i))
      i += 2
    }
    avalanche(sum)
  }

  private def accumulate(acc: Array[Long], bytes: Array[Byte], at: Long, stripes: Int): Unit = {
    var s = 0
    while (s < stripes) {
      accumulateAt(acc, bytes, at + stripeBytes * s, 8 * s)
      s += 1
    }
  }

  private def accumulateAt(acc: Array[Long], bytes: Array[Byte], at: Long, secretAt: Int): Unit = {
    var i = 0
    while (i < 8) {
      val a = OffHeap.getLong(bytes, at + 8 * i)
      val b = OffHeap.getLong(bytes, at + 8 * i + 8)
      val keyedA = a ^ secret(secretAt + 8 * i)
      val keyedB = b ^ secret(secretAt + 8 * i + 8)
      acc(i) += b + (keyedA & 0xffffffffL) * (keyedA >>> 32)
      acc(i + 1) += a + (keyedB & 0xffffffffL) * (keyedB >>> 32)
      i += 2
    }
  }

  private def scramble(acc: Array[Long]): Unit = {
    var i = 0
    while (i < 8) {
      acc(i) = (acc(i) ^ (acc(i) >>> 47) ^ secret(128 + 8 * i)) * Prime32_1
      i += 1
    }
  }

  private def mix(bytes: Array[Byte], at: Long, secretAt: Int): Long =
    fold(OffHeap.getLong(bytes, at) ^ secret(secretAt), OffHeap.getLong(bytes, at + 8) ^ secret(secretAt + 8))

  private def fold(a: Long, b: Long): Long =
    (a * b) ^ (Math.multiplyHigh(a, b) + ((a >> 63) & b) + ((b >> 63) & a))

  private def avalanche(hash: Long): Long = {
    val h = (hash ^ (hash >>> 37)) * PrimeMix
    h ^ (h >>> 32)
  }
}
