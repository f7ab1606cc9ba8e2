package statestore.benchmark

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.Platform

/**
 * Value rows (version: long, payload: binary) whose every byte follows from key number and version, so that
 * a row can be checked without keeping it. Every second word of the payload is random and the other one
 * small: a block compressor about halves them, as it does real state.
 *
 * @param wantedBytes size of a row; it is rounded up to UnsafeRow's 8-byte words, the least is 24
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
