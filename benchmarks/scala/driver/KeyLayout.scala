package statestore.benchmark

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.Platform

/**
 * The encoding of the driver's key numbers 0, 1, 2, ... as key rows, and back.
 *
 * A number is scattered over the key space by a reversible multiplication, so that neighbours in number are
 * no neighbours in any store's order. Values are immutable and may be used from several threads.
 */
sealed abstract class KeyLayout(val schema: StructType) {
  val rowBytes: Int = 8 + 8 * schema.length
  def encoderSpec: KeyStateEncoderSpec

  /** Writes the row of key number `index` at `offset` (a multiple of 8) of `buffer`. */
  def write(buffer: Array[Byte], offset: Int, index: Long): Unit

  /** The key number of a row that `write` made. */
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

  /** A long: grouping keys of aggregations and of functions over groups. */
  case object Plain extends KeyLayout(longs("key")) {
    def encoderSpec: KeyStateEncoderSpec = NoPrefixKeyStateEncoderSpec(schema)
    def write(buffer: Array[Byte], offset: Int, index: Long): Unit = {
      put(buffer, offset, 0, 0L)
      put(buffer, offset, 1, scatter(index))
    }
    def indexOf(row: UnsafeRow): Long = gather(row.getLong(0))
  }

  /** Group and item, five items a group, scanned by group: joins and session windows. */
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

  /** Time and key, ordered by time: timers and watermark eviction in order. */
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
