package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.io.File

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Arena, Bytes, OffHeap, StoreMemory}

/**
 * Builds the index block of an SST outside the heap: for each data block a key that is not less than its last and less
 * than the next one's first. To be freed.
 */
private[sst] final class SstIndexBuilder(memory: StoreMemory, spillDirectory: File) {
  private val content = new Arena(memory, spillDirectory)
  private val restarts = new Arena(memory, spillDirectory)
  private var contentBytes = 0L
  private var count = 0

  def entries: Int = count

  /** Length of the block. */
  def bytes: Long = contentBytes + 4L * count + 4

  /** Adds a block whose last key, and the key after, are given. */
  def add(last: Long, lastLength: Int, next: Long, nextLength: Int, handle: SstHandle): Unit = {
    val common = Bytes.common(last, lastLength, next, nextLength)
    val shortened = common < lastLength && common < nextLength && {
      val byte = OffHeap.getByte(null, last + common) & 0xff
      byte + 1 < (OffHeap.getByte(null, next + common) & 0xff)
    }
    put(last, if (shortened) common + 1 else lastLength, handle, shortened)
  }

  /** Adds the last block. */
  def addLast(last: Long, lastLength: Int, handle: SstHandle): Unit = put(last, lastLength, handle, incremented = false)

  private def put(key: Long, length: Int, handle: SstHandle, incremented: Boolean): Unit = {
    val before = SstWriter.varint(0) ++ SstWriter.varint(length)
    val after = SstWriter.handleBytes(handle)
    OffHeap.putInt(null, restarts.allocate(4), Math.toIntExact(contentBytes))
    count += 1
    val entryBytes = before.length.toLong + length + after.length
    val at = content.allocate(entryBytes)
    val keyAt = at + before.length
    Bytes.put(before, at)
    OffHeap.copyMemory(null, key, null, keyAt, length)
    if (incremented) OffHeap.putByte(null, keyAt + length - 1, (OffHeap.getByte(null, keyAt + length - 1) + 1).toByte)
    Bytes.put(after, keyAt + length)
    contentBytes += entryBytes
  }

  /** Puts it. */
  def finish(out: SstBlockWriter): Unit = {
    putAll(content, out)
    putAll(restarts, out)
    out.ensure(4)
    out.putInt(count)
  }

  private def putAll(arena: Arena, out: SstBlockWriter): Unit =
    for (i <- 0 until arena.segmentCount) out.putBytes(null, arena.segmentStart(i), arena.segmentEnd(i) - arena.segmentStart(i))

  def free(): Unit = {
    content.free()
    restarts.free()
  }
}
