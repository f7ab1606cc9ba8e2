package org.apache.spark.sql.execution.streaming.state.incremental.sst

import org.apache.spark.sql.execution.streaming.state.incremental.memory.Bytes
import org.apache.spark.unsafe.Platform

/**
 * Builds the index block of an SST: for each data block a key that is not less than its last and less than
 * the next one's first.
 */
private[sst] final class SstIndexBuilder {
  private var bytes = new Array[Byte](1 << 12)
  private var at = 0
  private var restarts = new Array[Int](64)
  private var count = 0

  def entries: Int = count

  /** Adds a block whose last key, and the key after, are given. */
  def add(last: Long, lastLength: Int, next: Long, nextLength: Int, handle: SstHandle): Unit = {
    val common = Bytes.common(last, lastLength, next, nextLength)
    val shortened = common < lastLength && common < nextLength && {
      val byte = Platform.getByte(null, last + common) & 0xff
      byte + 1 < (Platform.getByte(null, next + common) & 0xff)
    }
    put(last, if (shortened) common + 1 else lastLength, handle, shortened)
  }

  /** Adds the last block. */
  def addLast(last: Long, lastLength: Int, handle: SstHandle): Unit = put(last, lastLength, handle, incremented = false)

  private def put(key: Long, length: Int, handle: SstHandle, incremented: Boolean): Unit = {
    if (count == restarts.length) restarts = java.util.Arrays.copyOf(restarts, count * 2)
    restarts(count) = at
    count += 1
    append(SstWriter.varint(0))
    append(SstWriter.varint(length))
    append(Bytes.array(key, length))
    if (incremented) bytes(at - 1) = (bytes(at - 1) + 1).toByte
    append(SstWriter.handleBytes(handle))
  }

  private def append(more: Array[Byte]): Unit = {
    if (at + more.length > bytes.length) bytes = java.util.Arrays.copyOf(bytes, math.max(at + more.length, at * 2))
    System.arraycopy(more, 0, bytes, at, more.length)
    at += more.length
  }

  def finish(): Array[Byte] = {
    val block = java.nio.ByteBuffer.allocate(at + 4 * count + 4).order(java.nio.ByteOrder.LITTLE_ENDIAN)
    block.put(bytes, 0, at)
    var i = 0
    while (i < count) {
      block.putInt(restarts(i))
      i += 1
    }
    block.putInt(count)
    block.array
  }
}
