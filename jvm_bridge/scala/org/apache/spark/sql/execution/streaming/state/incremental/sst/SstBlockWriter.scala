package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.nio.channels.FileChannel
import java.util.zip.{CRC32, CRC32C}

import org.apache.spark.sql.execution.streaming.state.incremental.memory.OffHeap

/**
 * The output of an SST writer: collects bytes outside the heap, ends blocks with their trailers, writes them to the
 * file and counts its CRC-32. The buffer has the same size for blocks of any length, and is smaller until a file turns
 * out to be large. One thread.
 */
private[incremental] final class SstBlockWriter(channel: FileChannel) {
  private var buffer = OffHeap.buffer(SstBlockWriter.leastRoomBytes)
  private var address = OffHeap.addressOf(buffer)
  private var at = 0
  private var written = 0L

  /** Offset in the file of the block that is being built. */
  private var block = 0L

  /** Index in the buffer of the first byte that the block's checksum does not count yet. */
  private var unchecked = 0
  private val fileCrc = new CRC32
  private val checksum = new CRC32C

  /** Bytes of the block that is being built, so far. */
  def blockBytes: Int = Math.toIntExact(bytes - block)

  /** Bytes put so far. */
  def bytes: Long = written + at

  /** The CRC-32 of all that was flushed; of the whole file after [[finish]]. */
  def crc32: Long = fileCrc.getValue

  /** Makes room for a put of this many bytes, at most the size of the buffer. */
  def ensure(more: Int): Unit = if (buffer.capacity - at < more) flushToGoOn()

  private def flushToGoOn(): Unit = {
    flush()
    if (buffer.capacity < SstBlockWriter.roomBytes) {
      free()
      buffer = OffHeap.buffer(SstBlockWriter.roomBytes)
      address = OffHeap.addressOf(buffer)
    }
  }

  private def flush(): Unit = {
    check()
    buffer.position(0).limit(at)
    fileCrc.update(buffer)
    buffer.position(0)
    OffHeap.fileUse()
    while (buffer.hasRemaining) channel.write(buffer)
    written += at
    at = 0
    unchecked = 0
  }

  private def check(): Unit = {
    buffer.limit(at).position(unchecked)
    checksum.update(buffer)
    unchecked = at
  }

  /** Puts a byte. This and the other fixed-size puts need [[ensure]] before them. */
  def putByte(value: Byte): Unit = {
    OffHeap.putByte(null, address + at, value)
    at += 1
  }

  def putInt(value: Int): Unit = {
    OffHeap.putInt(null, address + at, value)
    at += 4
  }

  def putLong(value: Long): Unit = {
    OffHeap.putLong(null, address + at, value)
    at += 8
  }

  def putVarint(value: Long): Unit = {
    var left = value
    while ((left & ~0x7fL) != 0) {
      putByte((left | 0x80).toByte)
      left >>>= 7
    }
    putByte(left.toByte)
  }

  /** Puts any number of bytes from a place as [[OffHeap]] takes it; needs no [[ensure]]. */
  def putBytes(from: AnyRef, offset: Long, length: Long): Unit = {
    var done = 0L
    while (done < length) {
      if (at == buffer.capacity) flushToGoOn()
      val part = math.min(length - done, buffer.capacity - at)
      OffHeap.copyMemory(from, offset + done, null, address + at, part)
      at += part.toInt
      done += part
    }
  }

  def putArray(bytes: Array[Byte]): Unit = putBytes(bytes, OffHeap.arrayBase, bytes.length)

  /**
   * Ends the block with its trailer.
   *
   * @return the place of the block in the file
   */
  def endBlock(): SstHandle = {
    ensure(SstFormat.trailerBytes)
    val handle = SstHandle(block, blockBytes)
    putByte(SstFormat.uncompressed)
    check()
    putInt(SstFormat.masked(checksum.getValue.toInt))
    checksum.reset()
    unchecked = at
    block = bytes
    handle
  }

  /** Writes the bytes that are left. Those after the last block, the footer, belong to no block. */
  def finish(): Unit = flush()

  /** Frees the buffer. Called once. */
  def free(): Unit = OffHeap.dispose(buffer)
}

private[incremental] object SstBlockWriter {
  private val leastRoomBytes = 32 << 10
  private val roomBytes = 256 << 10
}
