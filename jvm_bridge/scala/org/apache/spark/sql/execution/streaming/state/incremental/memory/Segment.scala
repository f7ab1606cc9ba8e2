package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.io.{File, RandomAccessFile}
import java.nio.{ByteBuffer, MappedByteBuffer}
import java.nio.channels.FileChannel
import java.util.concurrent.atomic.AtomicBoolean

import org.apache.spark.storage.StorageUtils

/** Something needs more memory in one piece than there can be. */
private[incremental] final class PieceTooLargeException(message: String) extends IllegalStateException(message)

/**
 * A piece of memory outside the heap: taken from the budget, or, when the budget had no room, a memory-mapped
 * file without a name, whose pages the operating system may write out.
 *
 * @param address where it begins
 * @param bytes   its length
 * @param mapped  the mapping, null when it is from the budget
 */
private[incremental] final class Segment private (
    val address: Long,
    val bytes: Long,
    mapped: MappedByteBuffer,
    memory: StoreMemory) {
  private val freed = new AtomicBoolean

  def spilled: Boolean = mapped != null

  /** Gives the memory back, once; the caller knows that nobody reads it any more. */
  def free(): Unit =
    if (!freed.compareAndSet(false, true)) { if (OffHeap.checked) MemoryGuard.freedAgain(address) }
    else if (spilled) {
      OffHeap.unmapped(address)
      StorageUtils.dispose(mapped)
    } else {
      OffHeap.free(address)
      NativeHeap.freed(bytes)
      memory.release(bytes)
    }
}

private[incremental] object Segment {
  private val zeros = ByteBuffer.allocateDirect(1 << 16).asReadOnlyBuffer

  /** A segment whose bytes were reserved in the budget before. */
  def reserved(bytes: Long, memory: StoreMemory): Segment =
    try new Segment(OffHeap.allocate(bytes), bytes, null, memory)
    catch {
      case e: Throwable =>
        memory.release(bytes)
        throw e
    }

  /**
   * A segment in a file of that directory. Its blocks are written at once, so that a full disk is an
   * IOException here.
   */
  def spill(bytes: Long, directory: File, memory: StoreMemory): Segment = {
    if (bytes > memory.largestFileBytes) {
      throw new PieceTooLargeException(
        s"A part of the state in memory needs $bytes bytes in one piece, more than a mapped file can have " +
          s"and more than the memory budget of ${memory.budgetBytes} bytes has left; raise the budget or use more partitions")
    }
    directory.mkdirs()
    val file = File.createTempFile("spill", ".tmp", directory)
    try {
      val channel = new RandomAccessFile(file, "rw").getChannel
      try {
        fill(channel, bytes)
        val mapped = channel.map(FileChannel.MapMode.READ_WRITE, 0, bytes)
        new Segment(OffHeap.mapped(mapped), bytes, mapped, memory)
      } finally channel.close()
    } finally file.delete()
  }

  private def fill(channel: FileChannel, bytes: Long): Unit = {
    val block = zeros.duplicate
    var left = bytes
    while (left > 0) {
      block.position(0).limit(math.min(left, block.capacity).toInt)
      left -= channel.write(block)
    }
  }
}
