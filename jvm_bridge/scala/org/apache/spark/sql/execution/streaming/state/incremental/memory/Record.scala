package org.apache.spark.sql.execution.streaming.state.incremental.memory

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
