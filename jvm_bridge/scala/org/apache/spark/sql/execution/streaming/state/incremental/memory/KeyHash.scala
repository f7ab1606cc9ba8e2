package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.security.SecureRandom

/**
 * The 64-bit hash of keys that RocksDB's bloom filters of format_version 5 use: the XXH3 of xxHash 0.7.2, seed 0.
 * Whoever chooses keys can make any number of them with one hash, so no table uses it.
 */
private[incremental] object KeyHash extends Xxh3(Xxh3.published)

/**
 * The 64-bit hash of keys for tables in memory. It mixes in a secret of this JVM, so that nobody can choose keys that
 * fall into one slot. No stored data contains it.
 */
private[incremental] object SlotHash
    extends Xxh3({
      val secret = new Array[Byte](Xxh3.published.length)
      new SecureRandom().nextBytes(secret)
      secret
    })

/** XXH3 over a secret of 192 bytes. Any number of threads. */
private[memory] sealed abstract class Xxh3(secret: Array[Byte]) {
  import Xxh3._

  private def key(offset: Int): Long = OffHeap.getLong(secret, OffHeap.arrayBase + offset)

  private val k0 = key(0)
  private val k8 = key(8)
  private val k16 = key(16)
  private val k24 = key(24)
  private val k32 = key(32)
  private val k40 = key(40)
  private val k48 = key(48)
  private val k56 = key(56)

  /** Returns the hash of an array. */
  def of(bytes: Array[Byte]): Long = of(bytes, OffHeap.arrayBase, bytes.length)

  /** Returns the hash of bytes at a place, as [[Bytes]] has places. */
  def of(o: AnyRef, at: Long, length: Int): Long =
    if (length > 16) {
      if (length <= 64) upTo64(o, at, length)
      else if (length <= 240) upTo240(o, at, length)
      else long(o, at, length)
    } else if (length > 8) {
      val low = OffHeap.getLong(o, at) ^ k0
      val high = OffHeap.getLong(o, at + length - 8) ^ k8
      avalanche(length + low + high + fold(low, high))
    } else if (length >= 4) {
      val low = OffHeap.getInt(o, at) & 0xffffffffL
      val keyed = (low | (OffHeap.getInt(o, at + length - 4).toLong << 32)) ^ k0
      val mixed = length + (keyed ^ (keyed >>> 51)) * P32_1
      avalanche((mixed ^ (mixed >>> 47)) * P64_2)
    } else if (length > 0) {
      val combined = (OffHeap.getByte(o, at) & 0xffL) | (OffHeap.getByte(o, at + (length >> 1)) & 0xffL) << 8 |
        (OffHeap.getByte(o, at + length - 1) & 0xffL) << 16 | length.toLong << 24
      avalanche((combined ^ (k0 & 0xffffffffL)) * P64_1)
    } else fold(k0, P64_2)

  private def upTo64(o: AnyRef, at: Long, length: Int): Long = {
    var sum = length * P64_1
    if (length > 32) {
      sum += mix(o, at + 16, k32, k40)
      sum += mix(o, at + length - 32, k48, k56)
    }
    sum += mix(o, at, k0, k8)
    sum += mix(o, at + length - 16, k16, k24)
    avalanche(sum)
  }

  private def upTo240(o: AnyRef, at: Long, length: Int): Long = {
    var sum = length * P64_1
    if (length <= 128) {
      var i = (length - 1) / 32
      while (i >= 0) {
        sum += mix(o, at + 16 * i, key(32 * i), key(32 * i + 8))
        sum += mix(o, at + length - 16 * (i + 1), key(32 * i + 16), key(32 * i + 24))
        i -= 1
      }
    } else {
      var i = 0
      while (i < 8) {
        sum += mix(o, at + 16 * i, key(16 * i), key(16 * i + 8))
        i += 1
      }
      sum = avalanche(sum)
      while (i < length / 16) {
        sum += mix(o, at + 16 * i, key(16 * (i - 8) + 3), key(16 * (i - 8) + 11))
        i += 1
      }
      sum += mix(o, at + length - 16, key(119), key(127))
    }
    avalanche(sum)
  }

  private def long(o: AnyRef, at: Long, length: Int): Long = {
    val acc = Array(P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1)
    val stripes = length / 64
    var s = 0
    while (s < stripes) {
      accumulate(acc, o, at + 64L * s, 8 * (s & 15))
      if ((s & 15) == 15) scramble(acc)
      s += 1
    }
    if ((length & 63) != 0) accumulate(acc, o, at + length - 64, 192 - 64 - 7)
    var sum = length * P64_1
    var i = 0
    while (i < 8) {
      sum += fold(acc(i) ^ key(11 + 8 * i), acc(i + 1) ^ key(19 + 8 * i))
      i += 2
    }
    avalanche(sum)
  }

  private def accumulate(acc: Array[Long], o: AnyRef, at: Long, secretAt: Int): Unit = {
    var i = 0
    while (i < 8) {
      val data = OffHeap.getLong(o, at + 8 * i)
      val keyed = data ^ key(secretAt + 8 * i)
      acc(i) += data + (keyed & 0xffffffffL) * (keyed >>> 32)
      i += 1
    }
  }

  private def scramble(acc: Array[Long]): Unit = {
    var i = 0
    while (i < 8) {
      acc(i) = (acc(i) ^ (acc(i) >>> 47) ^ key(128 + 8 * i)) * P32_1
      i += 1
    }
  }

  private def mix(o: AnyRef, at: Long, low: Long, high: Long): Long =
    fold(OffHeap.getLong(o, at) ^ low, OffHeap.getLong(o, at + 8) ^ high)

  private def fold(a: Long, b: Long): Long =
    (a * b) ^ (Math.multiplyHigh(a, b) + ((a >> 63) & b) + ((b >> 63) & a))

  private def avalanche(hash: Long): Long = {
    val h = (hash ^ (hash >>> 37)) * P64_3
    h ^ (h >>> 32)
  }
}

private[memory] object Xxh3 {
  private val P32_1 = 0x9E3779B1L
  private val P32_2 = 0x85EBCA77L
  private val P32_3 = 0xC2B2AE3DL
  private val P64_1 = 0x9E3779B185EBCA87L
  private val P64_2 = 0xC2B2AE3D27D4EB4FL
  private val P64_3 = 0x165667B19E3779F9L
  private val P64_4 = 0x85EBCA77C2B2AE63L
  private val P64_5 = 0x27D4EB2F165667C5L

  /** The secret of the published hash. */
  val published: Array[Byte] = (
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221" +
      "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8" +
      "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb" +
      "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
  ).grouped(2).map(Integer.parseInt(_, 16).toByte).toArray
}
