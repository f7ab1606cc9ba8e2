package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.io.{EOFException, File, IOException, RandomAccessFile}
import java.lang.management.ManagementFactory
import java.nio.MappedByteBuffer
import java.nio.channels.FileChannel
import java.util.concurrent.locks.ReentrantLock

import com.sun.management.UnixOperatingSystemMXBean

import org.apache.spark.sql.execution.streaming.state.incremental.memory.OffHeap

/** An SST whose format only RocksDB itself can read. */
private[incremental] final class UnsupportedSstException(message: String) extends IOException(message)

/**
 * An SST file whose content differs from the written one: bytes changed, or the end is missing.
 *
 * @param offset place in the file at which the damage was found, in bytes
 */
private[incremental] final class DamagedSstException(val file: File, val offset: Long, reason: String,
    cause: Throwable = null)
    extends IOException(s"$file is damaged at byte $offset: $reason", cause)

/**
 * An SST file, read in pieces. Reads use calls on the file and not a mapping: a short or slow disk then causes an
 * exception or a wait that the JVM's safepoints do not wait for. Any number of threads; the interrupt of one thread
 * does not harm the others. The file keeps its descriptor only while few others are open.
 */
private[sst] final class SstFile(val file: File) extends AutoCloseable {
  private val lock = new ReentrantLock
  private var open: RandomAccessFile = _

  /** The last bytes of the file; null while they are not kept. */
  private var end: Array[Byte] = _
  val bytes: Long = locked(opened.length)

  private def locked[T](action: => T): T = {
    lock.lock()
    try action
    finally lock.unlock()
  }

  private def opened: RandomAccessFile = {
    if (open == null) {
      OffHeap.fileUse()
      open = new RandomAccessFile(file, "r")
      SstFile.noteOpen(this)
    }
    open
  }

  /** Reads the end of the file, where its metadata is, and keeps it until [[forgetEnd]]. */
  def keepEnd(): Unit = {
    val length = math.min(bytes, SstFile.endBytes).toInt
    end = read(bytes - length, length)
  }

  def forgetEnd(): Unit = end = null

  /**
   * Reads this many bytes from an offset on.
   *
   * @throws DamagedSstException if the file is too short
   */
  def read(offset: Long, length: Int): Array[Byte] = {
    val kept = end
    val at = if (kept == null) -1 else offset - (bytes - kept.length)
    if (at >= 0 && at + length <= kept.length) java.util.Arrays.copyOfRange(kept, at.toInt, at.toInt + length)
    else readFile(offset, length)
  }

  private def readFile(offset: Long, length: Int): Array[Byte] = {
    val content = new Array[Byte](length)
    locked {
      opened.seek(offset)
      OffHeap.fileUse()
      try open.readFully(content)
      catch {
        case _: EOFException =>
          throw new DamagedSstException(file, offset, s"the file ends before the $length bytes there")
      }
    }
    content
  }

  /**
   * Reads the place of a block, and moves the reader behind it.
   *
   * @throws DamagedSstException if the block lies outside the file
   */
  def handle(from: VarintReader): SstHandle = {
    val offset = from.varint()
    val length = from.varint()
    if (offset < 0 || length < 4 || length > Int.MaxValue - SstFormat.trailerBytes ||
      offset > bytes - SstFormat.trailerBytes - length) {
      damaged(math.max(0, bytes - SstFormat.footerBytes), s"a block of $length bytes at $offset lies outside the file")
    }
    SstHandle(offset, length.toInt)
  }

  /** Throws a [[DamagedSstException]] for a place in this file. */
  def damaged(offset: Long, reason: String): Nothing = throw new DamagedSstException(file, offset, reason)

  /**
   * Throws an [[UnsupportedSstException]] unless the condition holds.
   *
   * @param otherwise reason, for the message
   */
  def require(condition: Boolean, otherwise: => String): Unit =
    if (!condition) throw new UnsupportedSstException(s"$file: $otherwise")

  /**
   * Maps the whole file into memory.
   *
   * @throws UnsupportedSstException if the file has more than 2 GiB
   * @throws IOException if the operating system has no mapping left
   */
  def map(): MappedByteBuffer = {
    if (bytes > Int.MaxValue) throw new UnsupportedSstException(s"$file has more than 2 GiB, which only RocksDB reads")
    OffHeap.fileUse()
    try locked(opened.getChannel.map(FileChannel.MapMode.READ_ONLY, 0, bytes))
    catch {
      case e: IOException if e.getCause.isInstanceOf[OutOfMemoryError] =>
        throw new IOException(
          s"$file cannot be mapped: this process has as many mappings as vm.max_map_count allows, or no " +
            "address space is left. Merge more often, use fewer partitions or raise the limit",
          e.getCause)
    }
  }

  /** Closes the descriptor. A later read opens the file again. */
  def close(): Unit = locked {
    SstFile.noteClosed(this)
    closeDescriptor()
  }

  private def closeDescriptor(): Unit = {
    if (open != null) open.close()
    open = null
  }

  /** Closes the descriptor unless a thread reads the file just now. Returns true if it was closed. */
  private def closeIfIdle(): Boolean = lock.tryLock() && {
    try closeDescriptor()
    finally lock.unlock()
    true
  }
}

private object SstFile {
  /** The number of open descriptors: an eighth of those that the process may have, within bounds. */
  private val maxOpen = math.max(512, math.min(8192, descriptorLimit / 8)).toInt

  private def descriptorLimit: Long = ManagementFactory.getOperatingSystemMXBean match {
    case unix: UnixOperatingSystemMXBean => unix.getMaxFileDescriptorCount
    case _ => 0
  }

  /** Bytes that hold the metadata of a file of some thousand rows. */
  private val endBytes = 16L << 10

  /** Files with a descriptor, in the order in which they were opened. */
  private val open = new java.util.LinkedHashSet[SstFile]

  private def noteOpen(file: SstFile): Unit = {
    val oldest = open.synchronized {
      open.add(file)
      if (open.size <= maxOpen) null
      else {
        val first = open.iterator.next()
        open.remove(first)
        first
      }
    }
    if (oldest != null && !oldest.closeIfIdle()) open.synchronized(open.add(oldest))
  }

  private def noteClosed(file: SstFile): Unit = open.synchronized(open.remove(file))
}
