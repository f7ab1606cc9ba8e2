package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.io.File
import java.util.concurrent.atomic.AtomicBoolean

/** The state needs more memory in one piece than there can be. */
private[incremental] final class PieceTooLargeException(message: String) extends IllegalStateException(message)

/**
 * A piece of memory outside the heap: taken from the budget, or, if the budget has no room, a piece of a memory-mapped
 * file without a name, whose pages the operating system may write out.
 *
 * @param address first byte
 * @param bytes length
 * @param file the file of which it is a piece, null if it is from the budget
 * @param freed true after it was given back
 */
private[incremental] final class Segment private (
    val address: Long,
    val bytes: Long,
    file: SpillFile,
    memory: StoreMemory,
    freed: AtomicBoolean) {
  def spilled: Boolean = file != null

  /** Gives the memory back, once. Nobody may read it any more. */
  def free(): Unit =
    if (!freed.compareAndSet(false, true)) { if (OffHeap.checked) MemoryGuard.freedAgain(address) }
    else if (spilled) {
      OffHeap.unmapped(address)
      file.release()
    } else {
      OffHeap.free(address)
      NativeHeap.freed(bytes)
      memory.release(bytes)
    }
}

private[incremental] object Segment {
  /** Allocates a segment whose bytes were reserved in the budget before. Nothing is allocated on the heap after it. */
  def reserved(bytes: Long, memory: StoreMemory): Segment =
    try {
      val freed = new AtomicBoolean
      new Segment(OffHeap.allocate(bytes), bytes, null, memory, freed)
    } catch {
      case e: Throwable =>
        memory.release(bytes)
        throw e
    }

  /**
   * Allocates a segment in a file of a directory. Its blocks are written at once, so that a full disk fails here.
   *
   * @throws LocalDiskException if the disk is full or fails
   * @throws PieceTooLargeException if no file can be as long
   */
  def spill(bytes: Long, directory: File, memory: StoreMemory): Segment = {
    if (bytes > memory.largestFileBytes) {
      throw new PieceTooLargeException(
        s"A part of the state in memory needs $bytes bytes in one piece, more than a mapped file can have " +
          s"and more than the memory budget of ${memory.budgetBytes} bytes has left; raise the budget or use more partitions")
    }
    val freed = new AtomicBoolean
    val (file, piece) = SpillFile.allocate(bytes.toInt, memory.largestFileBytes, directory)
    new Segment(OffHeap.mapped(piece), bytes, file, memory, freed)
  }
}
