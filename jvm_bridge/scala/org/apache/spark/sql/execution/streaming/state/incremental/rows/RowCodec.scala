package org.apache.spark.sql.execution.streaming.state.incremental.rows

import java.util.Arrays
import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.ColumnFamily
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, OffHeap, RowSizes}
import org.apache.spark.sql.execution.streaming.state.incremental.release.Encoders
import org.apache.spark.sql.execution.streaming.state.incremental.transaction.Scan
import org.apache.spark.sql.types.StructType

// Spark's rows as keys and values of the store: the codecs of a store's families, the encoding of a row, lists of
// values under one key, and iterators that decode.

/**
 * The schema of a column family, as Spark gives it. Immutable.
 *
 * @param multipleValues true if a key has a list of values
 */
final case class FamilySchema(keySpec: KeyStateEncoderSpec, values: StructType, multipleValues: Boolean)

/**
 * Makes codecs. Spark's encoders reuse buffers, so each store has its own.
 *
 * @param encoding "unsaferow" or "avro"
 */
final class Codecs(encoding: String, schemas: Option[StateSchemaProvider], columnFamilies: Boolean) {
  def make(name: String, family: ColumnFamily, schema: FamilySchema): RowCodec = {
    val avro = encoding == StateStoreEncoding.Avro.toString
    val data =
      if (avro) new AvroStateEncoder(schema.keySpec, schema.values, schemas, name)
      else new UnsafeRowDataEncoder(schema.keySpec, schema.values)
    new RowCodec(name, family, schema,
      RocksDBStateEncoder.getKeyEncoder(data, schema.keySpec, columnFamilies),
      Encoders.values(data, schema.values, schema.multipleValues, RowCodec.DelimiterBytes),
      isPlain = !avro)
  }
}

/**
 * The codecs of one store, a set for each thread. Spark's encoders reuse buffers and rows: a row that a thread was
 * given is valid until that thread asks for the next. Any thread.
 *
 * @param make makes the codec of a column family, or throws; its arguments are the operation and the family's name
 */
private[incremental] final class ThreadCodecs(make: (String, String) => RowCodec) {
  import ThreadCodecs._

  private val sets = new ConcurrentHashMap[Thread, CodecSet]

  /** The set that was used last: a single thread pays for one comparison. */
  private var latest: CodecSet = _

  /**
   * Returns the codec of a family for this thread.
   *
   * @param operation the calling operation, for the message of an exception
   */
  def apply(operation: String, name: String): RowCodec = {
    val set = ofThisThread
    if (set.latest == null || (name ne set.latest.name)) {
      val family = set.byName.get(name)
      set.latest = if (family != null) family else make(operation, name)
      if (family == null) set.byName.put(name, set.latest)
    }
    set.latest
  }

  /** Returns this thread's codec of the family of a codec, which may be another thread's. */
  def own(codec: RowCodec): RowCodec = if (codec.isOfThisThread) codec else apply("iterator", codec.name)

  /** Forgets all codecs. No other thread may use a codec meanwhile. */
  def clear(): Unit = {
    latest = null
    sets.clear()
  }

  private def ofThisThread: CodecSet = {
    val codec = latest
    if (codec != null && (codec.thread eq Thread.currentThread)) codec
    else {
      val own = sets.computeIfAbsent(Thread.currentThread, new CodecSet(_))
      latest = own
      own
    }
  }
}

private object ThreadCodecs {
  private final class CodecSet(val thread: Thread) {
    val byName = new java.util.HashMap[String, RowCodec]
    var latest: RowCodec = _
  }
}

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

  /** Keeps a copy of a row, which the caller may change; a large one would cost more than encoding it again. */
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
   * @throws DamagedListException if a key has several values, and the bytes are not such a list
   */
  def decodeValue(bytes: Array[Byte]): UnsafeRow = values.decodeValue(checked(bytes))

  /**
   * Decodes the values of a key; empty for null.
   *
   * @throws DamagedListException if the bytes are not a list of values
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

/** Bytes that are not values of a key. */
private[incremental] final class DamagedListException(message: String) extends IllegalStateException(message)

/** The values of a key in one array: each after its length in 4 bytes, with a delimiter between two of them. */
private[incremental] object JoinedLists {
  private val SizeBytes = 4

  /**
   * Checks that whole values fill an array. Spark's decoders take each length as it is: they read past the end of the
   * array if it is wrong.
   *
   * @param delimiterBytes 1 if the values have a delimiter between them, 0 if they have none
   * @throws DamagedListException if the array has anything else
   */
  def check(bytes: Array[Byte], delimiterBytes: Int): Unit = {
    var at = 0L
    while (at < bytes.length) {
      if (at + SizeBytes > bytes.length) damaged(bytes, "ends within the length of a value")
      val size = OffHeap.getInt(bytes, OffHeap.arrayBase + at)
      at += SizeBytes.toLong + size
      if (size < 1 || at > bytes.length) damaged(bytes, s"has a value of $size bytes")
      if (at < bytes.length) {
        if (delimiterBytes > 0 && bytes(at.toInt) != RowCodec.Delimiter) damaged(bytes, "lacks a delimiter")
        at += delimiterBytes
        if (at == bytes.length) damaged(bytes, "ends with a delimiter")
      }
    }
  }

  private def damaged(bytes: Array[Byte], what: String): Nothing =
    throw new DamagedListException(s"a list of values, ${bytes.length} bytes, $what: it was damaged, or written " +
      "with another way of joining values than it is read with")
}

/**
 * The decoded rows of a scan, with one pair object for all of them, as Spark's own stores do. It closes the scan at its
 * end. One thread at a time, which need not be the thread that began the scan.
 *
 * @param entries rows whose keys lack the id of the family
 * @param begun a codec of the family
 * @param check called with each pair
 */
private[incremental] final class RowIterator(
    entries: Scan, begun: RowCodec, codecs: ThreadCodecs, check: UnsafeRowPair => Unit)
    extends Iterator[UnsafeRowPair] {
  private val pair = new UnsafeRowPair
  private var state = RowIterator.Unknown

  override def hasNext: Boolean = {
    if (state == RowIterator.Unknown) {
      state = if (entries.advance()) RowIterator.Ready else RowIterator.Ended
      if (state == RowIterator.Ended) entries.close()
    }
    state == RowIterator.Ready
  }

  override def next(): UnsafeRowPair = {
    if (!hasNext) throw new NoSuchElementException("the scan has no more rows")
    state = RowIterator.Unknown
    val codec = codecs.own(begun)
    pair.withRows(codec.decodeKey(entries), codec.decodeValue(entries))
    check(pair)
    pair
  }
}

private object RowIterator {
  val Unknown = 0
  val Ready = 1
  val Ended = 2
}

/**
 * A [[RowIterator]] for families whose keys have many values: it returns a pair for each value. Each is decoded when it
 * is asked for, its key, too: other iterators of the family decode into the same rows.
 */
private[incremental] final class ValuesIterator(
    entries: Scan, begun: RowCodec, codecs: ThreadCodecs, check: UnsafeRowPair => Unit)
    extends Iterator[UnsafeRowPair] {
  private val pair = new UnsafeRowPair
  private var values: Iterator[UnsafeRow] = Iterator.empty
  private var ended = false

  override def hasNext: Boolean = {
    while (!values.hasNext && !ended) {
      if (entries.advance()) values = codecs.own(begun).decodeValues(entries.value)
      else {
        ended = true
        entries.close()
      }
    }
    values.hasNext
  }

  override def next(): UnsafeRowPair = {
    if (!hasNext) throw new NoSuchElementException("the scan has no more rows")
    pair.withRows(codecs.own(begun).decodeKey(entries), values.next())
    check(pair)
    pair
  }
}
