package org.apache.spark.sql.execution.streaming.state.incremental.rows

import java.util.Arrays

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.ColumnFamily
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, OffHeap, RowSizes}
import org.apache.spark.sql.execution.streaming.state.incremental.release.Encoders
import org.apache.spark.sql.execution.streaming.state.incremental.transaction.Scan

/**
 * A codec of the rows of one column family, with Spark's own encoders: a key is the family's 2-byte id and the bytes
 * that the key encoder makes of the row. A returned row is reused by the next call. For the thread that made the codec.
 *
 * @param isPlain true if keys without order and single values are the row's bytes after a byte for the version, as
 *     `UnsafeRowDataEncoder` writes them; rows of a scan are then shown in place
 */
final class RowCodec(
    val name: String,
    val family: ColumnFamily,
    schema: FamilySchema,
    keys: RocksDBKeyStateEncoder,
    values: RocksDBValueStateEncoder,
    isPlain: Boolean) {
  private val thread = Thread.currentThread
  private val high = (family.id >>> 8).toByte
  private val low = family.id.toByte

  /** The row that was encoded last (its bytes and its length, -1: none), and its encoding. */
  private var last = new Array[Byte](64)
  private var lastLength = -1
  private var encoded: Array[Byte] = _

  private val plainKey = schema.keySpec match {
    case NoPrefixKeyStateEncoderSpec(columns) if isPlain => new UnsafeRow(columns.length)
    case _ => null
  }
  private val plainValue = if (isPlain && !multipleValues) new UnsafeRow(schema.values.length) else null

  def isOfThisThread: Boolean = thread eq Thread.currentThread

  def scansPrefixes: Boolean = keys.supportPrefixKeyScan
  def scansRanges: Boolean = Encoders.scansRanges(keys, schema.keySpec)

  def deletesRanges: Boolean = Encoders.deletesRanges(keys, schema.keySpec)
  def multipleValues: Boolean = values.supportsMultipleValuesPerKey

  /**
   * Encodes a key. The caller must not change the array: the next call returns it again for the same row, since a key
   * that is read is usually written next.
   */
  def encodeKey(row: UnsafeRow): Array[Byte] = {
    if (!isLast(row)) {
      encoded = prefixed(keys.encodeKey(row))
      rememberLast(row)
    }
    encoded
  }

  private def isLast(row: UnsafeRow): Boolean = {
    val length = row.getSizeInBytes
    length == lastLength && Bytes.equal(row.getBaseObject, row.getBaseOffset, last, OffHeap.arrayBase, length)
  }

  private def rememberLast(row: UnsafeRow): Unit = {
    lastLength = if (row.getSizeInBytes > RowCodec.LargestRemembered) -1 else row.getSizeInBytes
    if (lastLength > last.length) last = new Array[Byte](lastLength * 2)
    if (lastLength > 0) {
      OffHeap.copyMemory(row.getBaseObject, row.getBaseOffset, last, OffHeap.arrayBase, lastLength)
    }
  }

  def encodePrefix(row: UnsafeRow): Array[Byte] = prefixed(keys.encodePrefixKey(row))

  def decodeKey(bytes: Array[Byte]): UnsafeRow =
    keys.decodeKey(Arrays.copyOfRange(bytes, RowCodec.PrefixBytes, bytes.length))

  /** Decodes the key at which a scan stands, whose keys lack the id of the family. */
  private[incremental] def decodeKey(at: Scan): UnsafeRow =
    if (plainKey == null) keys.decodeKey(at.key) else show(plainKey, at.bytes, at.keyAt, at.keyLength)

  /** Decodes the value at which a scan stands. */
  private[incremental] def decodeValue(at: Scan): UnsafeRow =
    if (plainValue == null) decodeValue(at.value) else show(plainValue, at.bytes, at.valueAt, at.valueLength)

  private def show(row: UnsafeRow, bytes: Array[Byte], at: Int, length: Int): UnsafeRow = {
    row.pointTo(bytes, OffHeap.arrayBase.toLong + at + RowCodec.VersionBytes, length - RowCodec.VersionBytes)
    row
  }

  def encodeValue(row: UnsafeRow): Array[Byte] = values.encodeValue(row)

  /** Encodes all values of a key, as they are stored. */
  def encodeValues(rows: Array[UnsafeRow]): Array[Byte] = {
    val encoded = rows.map(values.encodeValue)
    val length = encoded.iterator.map(_.length.toLong).sum + math.max(0, encoded.length - 1)
    RowSizes.check("put", 0, length)
    val all = new Array[Byte](length.toInt)
    var at = 0
    encoded.foreach { value =>
      if (at > 0) {
        all(at) = RowCodec.Delimiter
        at += 1
      }
      System.arraycopy(value, 0, all, at, value.length)
      at += value.length
    }
    all
  }

  /**
   * Decodes a value, the first one if a key has several; null for null.
   *
   * @throws DamagedListException if a key has several values, and the bytes are no such list
   */
  def decodeValue(bytes: Array[Byte]): UnsafeRow = values.decodeValue(checked(bytes))

  /**
   * Decodes the values of a key; empty for null.
   *
   * @throws DamagedListException if the bytes are no list of values
   */
  def decodeValues(bytes: Array[Byte]): Iterator[UnsafeRow] = values.decodeValues(checked(bytes))

  private def checked(bytes: Array[Byte]): Array[Byte] = {
    if (multipleValues && bytes != null) JoinedLists.check(bytes, RowCodec.DelimiterBytes)
    bytes
  }

  private def prefixed(key: Array[Byte]): Array[Byte] = {
    RowSizes.check("encoding", RowCodec.PrefixBytes.toLong + key.length, 0)
    val bytes = new Array[Byte](RowCodec.PrefixBytes + key.length)
    bytes(0) = high
    bytes(1) = low
    System.arraycopy(key, 0, bytes, RowCodec.PrefixBytes, key.length)
    bytes
  }
}

object RowCodec {
  val PrefixBytes = 2

  /** The byte between the values of a key, as in RocksDB's StringAppendOperator and Spark's decoder. */
  val Delimiter: Byte = ','
  val DelimiterBytes = 1

  /** Bytes that `UnsafeRowDataEncoder` writes before a row. */
  private val VersionBytes = 1

  private val LargestRemembered = 4096

  /** Returns the first key after all keys that begin with a prefix, or null if there is none. */
  def after(prefix: Array[Byte]): Array[Byte] = {
    var last = prefix.length - 1
    while (last >= 0 && prefix(last) == -1) last -= 1
    if (last < 0) null
    else {
      val next = Arrays.copyOf(prefix, last + 1)
      next(last) = (next(last) + 1).toByte
      next
    }
  }
}
