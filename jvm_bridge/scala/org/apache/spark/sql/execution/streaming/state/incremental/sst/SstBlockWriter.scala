package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.nio.ByteBuffer
import java.nio.channels.FileChannel
import java.util.zip.{CRC32, CRC32C}

import org.apache.spark.unsafe.Platform

/**
 * The output of an SST writer: collects bytes outside the heap, ends blocks with their trailers, and writes
 * whole blocks to the file, counting its CRC-32. Its buffer is small until a file turns out to be large. One thread.
 */
private[incremental] final class SstBlockWriter(channel: FileChannel) {
  private var buffer = ByteBuffer.allocateDirect(SstBlockWriter.leastRoomBytes)
  private var address = Platform.getDirectBufferAddress(buffer)
  private var at = 0
  private var block = 0
  private var written = 0L
  private val whole = new CRC32
  private val checksum = new CRC32C

  /** Where the block that is being built begins in the file, and its length so far. */
  def blockOffset: Long = written + block
  def blockBytes: Int = at - block

  /** Bytes put so far. */
  def bytes: Long = written + at
  def crc32: Long = whole.getValue

  /** Makes sure that so many bytes can be put. */
  def ensure(more: Long): Unit = if (buffer.capacity - at < more) {
    flush()
    val wanted = math.max(at + more, math.min(buffer.capacity * 4L, SstBlockWriter.roomBytes))
    if (wanted > buffer.capacity) enlarge(wanted)
  }

  private def enlarge(bytes: Long): Unit = {
    val larger = ByteBuffer.allocateDirect(Math.toIntExact(bytes))
    buffer.position(0).limit(at)
    larger.put(buffer)
    buffer = larger
    address = Platform.getDirectBufferAddress(buffer)
  }

  /** Writes the blocks that are complete. */
  private def flush(): Unit = {
    buffer.position(0).limit(block)
    whole.update(buffer)
    buffer.position(0)
    while (buffer.hasRemaining) channel.write(buffer)
    written += block
    buffer.limit(at).position(block)
    buffer.compact()
    at -= block
    block = 0
  }

  /** Puts, after [[ensure]]. */
  def putByte(value: Byte): Unit = {
    Platform.putByte(null, address + at, value)
    at += 1
  }

  def putInt(value: Int): Unit = {
    Platform.putInt(null, address + at, value)
    at += 4
  }

  def putLong(value: Long): Unit = {
    Platform.putLong(null, address + at, value)
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

  def putBytes(from: AnyRef, offset: Long, length: Int): Unit = {
    Platform.copyMemory(from, offset, null, address + at, length)
    at += length
  }

  def putArray(bytes: Array[Byte]): Unit = putBytes(bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length)

  /** Ends the block with its trailer; its handle. */
  def endBlock(): SstHandle = {
    ensure(SstFormat.trailerBytes)
    val handle = SstHandle(blockOffset, blockBytes)
    putByte(SstFormat.uncompressed)
    checksum.reset()
    buffer.limit(at).position(block)
    checksum.update(buffer)
    buffer.clear()
    putInt(SstFormat.masked(checksum.getValue.toInt))
    block = at
    handle
  }

  /** Ends the file: what was put last is no block. */
  def finish(): Unit = {
    block = at
    flush()
  }
}

private[incremental] object SstBlockWriter {
  private val leastRoomBytes = 32 << 10
  private val roomBytes = 256 << 10
}
