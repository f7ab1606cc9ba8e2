package org.apache.spark.sql.execution.streaming.state.incremental.rows

import org.apache.spark.sql.execution.streaming.state.incremental.memory.OffHeap

/** Bytes that are no values of a key. */
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
