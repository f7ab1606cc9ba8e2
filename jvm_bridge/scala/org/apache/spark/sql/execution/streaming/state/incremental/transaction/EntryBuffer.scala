package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import org.apache.spark.sql.execution.streaming.state.incremental.memory.OffHeap

/**
 * Copies of rows on the heap, many in one array: what was handed out stays as it is, because an array that is
 * full is left to who still uses it. Arrays grow with use, so that a scan of five rows takes little. One thread.
 */
private[transaction] final class EntryBuffer {
  private var chunk = new Array[Byte](EntryBuffer.smallest)
  private var end = 0

  /** The array of the last copy. */
  def bytes: Array[Byte] = chunk

  /** Copies bytes from outside the heap; where in [[bytes]] they are, until the next copy. */
  def copy(address: Long, length: Int): Int = {
    val at = take(length)
    OffHeap.copyMemory(null, address, chunk, OffHeap.arrayBase + at, length)
    at
  }

  /** Copies two pieces, one behind the other. */
  def copy(address: Long, length: Int, address2: Long, length2: Int): Int = {
    val at = take(Math.addExact(length, length2))
    OffHeap.copyMemory(null, address, chunk, OffHeap.arrayBase + at, length)
    OffHeap.copyMemory(null, address2, chunk, OffHeap.arrayBase + at + length, length2)
    at
  }

  private def take(length: Int): Int = {
    if (length > chunk.length - end) {
      val standard = math.min(chunk.length * 2L, EntryBuffer.largest)
      chunk = new Array[Byte](math.max(length, standard.toInt))
      end = 0
    }
    end += length
    end - length
  }
}

private[transaction] object EntryBuffer {
  private val smallest = 1 << 10
  private val largest = 32L << 10
}
