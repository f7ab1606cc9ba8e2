package statestore.benchmark

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.Platform

/**
 * The encoding of the driver's key numbers 0, 1, 2, ... as key rows, and back.
 *
 * A number is scattered over the key space by a reversible multiplication, so that neighbours in number are no
 * neighbours in any store's order. Immutable; any number of threads.
 */
sealed abstract class KeyLayout(val schema: StructType) {
  val rowBytes: Int = 8 + 8 * schema.length
  def encoderSpec: KeyStateEncoderSpec

  /** Writes the row of key number `index` at `offset` (a multiple of 8) of `buffer`. */
  def write(buffer: Array[Byte], offset: Int, index: Long): Unit

  /** Returns the key number of a row that `write` made. */
  def indexOf(row: UnsafeRow): Long
}

object KeyLayout {
  private val Odd = 0x9E3779B97F4A7C15L
  private val OddInverse = {
    var inverse = Odd // Newton's iteration: each step doubles the number of right low bits
    for (_ <- 0 until 6) inverse *= 2 - Odd * inverse
    inverse
  }

  def scatter(index: Long): Long = java.lang.Long.reverseBytes(index * Odd)
  def gather(key: Long): Long = java.lang.Long.reverseBytes(key) * OddInverse

  def apply(name: String): KeyLayout = name match {
    case "plain" => Plain
    case "prefix" => Prefix
    case "range" => Range
    case other => throw new IllegalArgumentException(
        s"unknown key layout '$other': use plain, prefix or range")
  }

  private def put(buffer: Array[Byte], offset: Int, field: Int, value: Long): Unit =
    Platform.putLong(buffer, Platform.BYTE_ARRAY_OFFSET + offset + 8L * field, value)

  private def longs(names: String*): StructType =
    StructType(names.map(StructField(_, LongType, nullable = false)))

  /** A key of one long, as of aggregations and of functions over groups. */
  case object Plain extends KeyLayout(longs("key")) {
    def encoderSpec: KeyStateEncoderSpec = NoPrefixKeyStateEncoderSpec(schema)
    def write(buffer: Array[Byte], offset: Int, index: Long): Unit = {
      put(buffer, offset, 0, 0L)
      put(buffer, offset, 1, scatter(index))
    }
    def indexOf(row: UnsafeRow): Long = gather(row.getLong(0))
  }

  /** A key of group and item, five items a group, scanned by group, as of joins and session windows. */
  case object Prefix extends KeyLayout(longs("group", "item")) {
    val GroupSize = 5
    val prefixSchema: StructType = longs("group")
    val prefixBytes = 16
    def encoderSpec: KeyStateEncoderSpec = PrefixKeyScanStateEncoderSpec(schema, 1)
    def write(buffer: Array[Byte], offset: Int, index: Long): Unit = {
      put(buffer, offset, 0, 0L)
      put(buffer, offset, 1, scatter(index / GroupSize))
      put(buffer, offset, 2, index % GroupSize)
    }
    def writePrefix(buffer: Array[Byte], offset: Int, group: Long): Unit = Plain.write(buffer, offset, group)
    def indexOf(row: UnsafeRow): Long = gather(row.getLong(0)) * GroupSize + row.getLong(1)
  }

  /** A key of time and key, ordered by time, as of timers and of the eviction by watermark. */
  case object Range extends KeyLayout(longs("time", "key")) {
    def encoderSpec: KeyStateEncoderSpec = RangeKeyScanStateEncoderSpec(schema, Seq(0))
    def write(buffer: Array[Byte], offset: Int, index: Long): Unit = {
      put(buffer, offset, 0, 0L)
      put(buffer, offset, 1, index)
      put(buffer, offset, 2, scatter(index))
    }
    def indexOf(row: UnsafeRow): Long = row.getLong(0)
  }
}

/**
 * Value rows (version: long, payload: binary) whose bytes all follow from key number and version, so that a row can be
 * checked without a copy of it. Each second word of the payload is random and the others are small: a block compressor
 * about halves them, as it does real state.
 *
 * @param wantedBytes size of a row, rounded up to UnsafeRow's 8-byte words; at least 24
 */
final class ValueLayout(wantedBytes: Int) {
  val schema: StructType = StructType(Seq(
    StructField("version", LongType, nullable = false), StructField("payload", BinaryType, nullable = false)))
  private val head = 24
  private val words = math.max(0, (wantedBytes - head + 7) / 8)
  val rowBytes: Int = head + 8 * words

  def write(buffer: Array[Byte], offset: Int, index: Long, version: Long): Unit = {
    val base = Platform.BYTE_ARRAY_OFFSET + offset.toLong
    Platform.putLong(buffer, base, 0L)
    Platform.putLong(buffer, base + 8, version)
    Platform.putLong(buffer, base + 16, (head.toLong << 32) | (8L * words))
    var word = 0
    while (word < words) {
      Platform.putLong(buffer, base + head + 8L * word, payload(index, version, word))
      word += 1
    }
  }

  /** Returns true if `row` has the bytes that `write` makes for this key number and version. */
  def matches(row: UnsafeRow, index: Long, version: Long): Boolean = {
    if (row.getSizeInBytes != rowBytes || row.getLong(0) != version) return false
    val base = row.getBaseOffset + head
    var word = 0
    while (word < words) {
      if (Platform.getLong(row.getBaseObject, base + 8L * word) != payload(index, version, word)) return false
      word += 1
    }
    true
  }

  private def payload(index: Long, version: Long, word: Int): Long = {
    var x = index * 0xBF58476D1CE4E5B9L + version * 0x94D049BB133111EBL + word
    x = (x ^ (x >>> 30)) * 0xBF58476D1CE4E5B9L
    x = (x ^ (x >>> 27)) * 0x94D049BB133111EBL
    x ^= x >>> 31
    if ((word & 1) == 0) x else x & 0xFF
  }
}

/**
 * The layouts and the number of the stores of a case.
 *
 * @param threads number of tasks that run at a time
 */
final case class Shape(keys: KeyLayout, values: ValueLayout, stores: Int, threads: Int)

object Shape {
  def apply(node: JsonNode): Shape = Shape(
    KeyLayout(node.path("layout").asText("plain")),
    new ValueLayout(node.path("value_bytes").asInt(100)),
    node.path("stores").asInt(1),
    node.path("threads").asInt(2))
}
