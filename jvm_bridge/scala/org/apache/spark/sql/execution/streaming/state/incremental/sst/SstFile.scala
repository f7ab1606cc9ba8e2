package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.io.{EOFException, File, IOException, RandomAccessFile}
import java.lang.management.ManagementFactory
import java.nio.MappedByteBuffer
import java.nio.channels.FileChannel
import java.util.concurrent.locks.ReentrantLock

import com.sun.management.UnixOperatingSystemMXBean

import org.apache.spark.sql.execution.streaming.state.incremental.memory.OffHeap

/** An SST that only RocksDB itself can read. */
private[incremental] final class UnsupportedSstException(message: String) extends IOException(message)

/** An SST file that has not the content that was written to it: some bytes changed, or its end is missing. */
private[incremental] final class DamagedSstException(val file: File, val offset: Long, reason: String, cause: Throwable = null)
    extends IOException(s"$file is damaged at byte $offset: $reason", cause)

/**
 * An SST file, read in pieces. Reads go through the file, not through a mapping, for a reason: where the disk has less
 * than it should, or is slow, that is an exception and a wait that the JVM's safepoints need not wait for. Any number
 * of threads; an interrupted one harms no other. Its descriptor is open only while few others are.
 */
private[sst] final class SstFile(val file: File) extends AutoCloseable {
  private val lock = new ReentrantLock
  private var open: RandomAccessFile = _

  /** The last bytes of the file, null while they are not kept. */
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
   * This many bytes from an offset on.
   *
   * @throws DamagedSstException when the file ends before
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
      catch { case _: EOFException => throw new DamagedSstException(file, offset, s"it ends before the $length bytes there") }
    }
    content
  }

  /**
   * Reads where a block is, and stands behind that.
   *
   * @throws DamagedSstException when the block would lie outside the file
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

  def damaged(offset: Long, reason: String): Nothing = throw new DamagedSstException(file, offset, reason)

  /** Throws that only RocksDB can read it, unless the condition holds. */
  def require(condition: Boolean, otherwise: => String): Unit =
    if (!condition) throw new UnsupportedSstException(s"$file: $otherwise")

  /**
   * The whole file in memory.
   *
   * @throws IOException when the operating system has no mapping left
   */
  def map(): MappedByteBuffer = {
    if (bytes > Int.MaxValue) throw new UnsupportedSstException(s"$file: it has more than 2 GiB")
    OffHeap.fileUse()
    try locked(opened.getChannel.map(FileChannel.MapMode.READ_ONLY, 0, bytes))
    catch {
      case e: IOException if e.getCause.isInstanceOf[OutOfMemoryError] =>
        throw new IOException(s"$file cannot be mapped: this process has as many mappings as vm.max_map_count allows, or no " +
          "address space is left. More frequent merges, fewer partitions or a larger limit help", e.getCause)
    }
  }

  /** Gives its descriptor back; it is opened again when something is read. */
  def close(): Unit = locked {
    SstFile.noteClosed(this)
    closeDescriptor()
  }

  private def closeDescriptor(): Unit = {
    if (open != null) open.close()
    open = null
  }

  /** Closes it; false when somebody reads it just now. */
  private def closeIfIdle(): Boolean = lock.tryLock() && {
    try closeDescriptor()
    finally lock.unlock()
    true
  }
}

private object SstFile {
  /** An eighth of the descriptors that the process may have, where that is more than files of some stores. */
  private val mostOpen = math.max(512, math.min(8192, descriptorLimit / 8)).toInt

  private def descriptorLimit: Long = ManagementFactory.getOperatingSystemMXBean match {
    case unix: UnixOperatingSystemMXBean => unix.getMaxFileDescriptorCount
    case _ => 0
  }

  /** Has the metadata of a file of some thousand rows. */
  private val endBytes = 16L << 10

  /** Files with a descriptor, the one that was opened first before the others. */
  private val open = new java.util.LinkedHashSet[SstFile]

  private def noteOpen(file: SstFile): Unit = {
    val oldest = open.synchronized {
      open.add(file)
      if (open.size <= mostOpen) null
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
