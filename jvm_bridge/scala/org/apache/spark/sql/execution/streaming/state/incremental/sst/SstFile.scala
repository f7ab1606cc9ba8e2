package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.io.{EOFException, File, IOException, RandomAccessFile}
import java.lang.management.ManagementFactory
import java.lang.ref.{ReferenceQueue, WeakReference}
import java.nio.MappedByteBuffer
import java.nio.channels.FileChannel
import java.nio.file.Files
import java.nio.file.attribute.{BasicFileAttributes, FileTime}
import java.util.concurrent.locks.ReentrantLock

import scala.collection.mutable

import com.sun.management.UnixOperatingSystemMXBean

import org.apache.spark.sql.execution.streaming.state.incremental.memory.OffHeap
import org.apache.spark.storage.StorageUtils

// The bytes of an SST: RocksDB's constants and numbers, the open and mapped file, and the parts that were verified.

/**
 * The place of a block in its file.
 *
 * @param offset first byte
 * @param bytes length without the trailer
 */
private[incremental] final case class SstHandle(offset: Long, bytes: Int) {

  /** Length with the trailer. */
  def length: Int = bytes + SstFormat.trailerBytes

  /** First byte after the trailer. */
  def end: Long = offset + length
}

/** Constants of RocksDB's block-based table format, format_version 5. */
private[sst] object SstFormat {
  val magic: Long = 0x88e241b785f4cff7L
  val version = 5
  val footerBytes = 53

  /** Length of the trailer of a block: the kind of compression and the checksum. */
  val trailerBytes = 5
  val crc32c: Byte = 1

  /** Kinds of compression, by the first byte of a trailer. */
  val uncompressed: Byte = 0
  val snappy: Byte = 1
  val lz4: Byte = 4
  val lz4High: Byte = 5
  val zstd: Byte = 7

  /** Length of a key's footer in a data block: sequence number (7 bytes) and kind. */
  val keyFooterBytes = 8
  val removal: Byte = 0
  val put: Byte = 1

  val filterName = "fullfilter.rocksdb.BuiltinBloomFilter"
  val propertiesName = "rocksdb.properties"
  val dictionaryName = "rocksdb.compression_dict"
  val comparatorName = "leveldb.BytewiseComparator"

  /** Returns a CRC-32C in the form in which files store it. */
  def masked(crc: Int): Int = Integer.rotateRight(crc, 15) + 0xa282ead8
}

/**
 * A reader of numbers from memory outside the heap. One thread.
 *
 * @param at address of the next byte
 */
private[sst] final class VarintReader(var at: Long) {

  /**
   * Reads a length: a number of up to 32 bits.
   *
   * @return a negative number if the bytes are not a length
   */
  def length(): Int = {
    var byte = OffHeap.getByte(null, at)
    at += 1
    if (byte >= 0) byte
    else {
      var value = byte & 0x7f
      var shift = 7
      while (byte < 0) {
        if (shift > 28) return -1
        byte = OffHeap.getByte(null, at)
        at += 1
        value |= (byte & 0x7f) << shift
        shift += 7
      }
      value
    }
  }

  /**
   * Reads a number of up to 64 bits, seven in a byte, the lowest first.
   *
   * @throws java.io.IOException if the number has more than 64 bits
   */
  def varint(): Long = {
    var byte = OffHeap.getByte(null, at)
    at += 1
    if (byte >= 0) byte
    else {
      var value = byte & 0x7fL
      var shift = 7
      while (byte < 0) {
        if (shift > 63) throw new java.io.IOException("An SST block is damaged: a number has more than 64 bits")
        byte = OffHeap.getByte(null, at)
        at += 1
        value |= (byte & 0x7fL) << shift
        shift += 7
      }
      value
    }
  }
}

/** A file of a kind that this store never writes, and does not read. */
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
    val tail = end
    val at = if (tail == null) -1 else offset - (bytes - tail.length)
    if (at >= 0 && at + length <= tail.length) java.util.Arrays.copyOfRange(tail, at.toInt, at.toInt + length)
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
   * Maps the whole file into memory, in pieces of that length.
   *
   * @throws IOException if the operating system has no mapping left
   */
  def map(pieceBytes: Int): SstMapping = {
    val pieces = mutable.ArrayBuffer.empty[MappedByteBuffer]
    try {
      for (offset <- 0L until bytes by pieceBytes.toLong) {
        val length = math.min(bytes - offset, pieceBytes.toLong)
        OffHeap.fileUse()
        pieces += locked(opened.getChannel.map(FileChannel.MapMode.READ_ONLY, offset, length))
      }
      new SstMapping(pieces.toArray, pieceBytes)
    } catch {
      case e: IOException =>
        pieces.foreach(StorageUtils.dispose)
        if (!e.getCause.isInstanceOf[OutOfMemoryError]) throw e
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

/**
 * The bytes of a file as mappings, which each have less than 2 GiB. Any number of threads.
 *
 * @param pieces the mappings, all but the last of `pieceBytes` bytes
 */
private[sst] final class SstMapping(pieces: Array[MappedByteBuffer], pieceBytes: Int) {
  private val addresses = pieces.map(OffHeap.mapped(_))
  private val first = addresses.headOption.getOrElse(0L)

  /** Address of the last number of the file, which ends every SST; 0 if it lies in two pieces. */
  private val magicAt =
    pieces.lastOption.fold(0L)(last => if (last.capacity < 8) 0 else addresses.last + last.capacity - 8)

  def count: Int = pieces.length

  /**
   * Returns false if the file has become shorter. The rest of the page in which it ends then reads as zeros, and each
   * page after that fails. So either way its last number is not read any more.
   */
  def isWhole: Boolean = magicAt == 0 || OffHeap.getLong(null, magicAt) == SstFormat.magic

  /** Returns the address of a block, 0 if its content and trailer do not lie in one piece. */
  def at(block: SstHandle): Long =
    if (addresses.length == 1) first + block.offset
    else {
      val piece = block.offset / pieceBytes
      val from = block.offset % pieceBytes
      if (from + block.length > pieceBytes) 0 else addresses(piece.toInt) + from
    }

  /** Returns the place in the file of an address; 0 for any other. */
  def placeOf(address: Long): Long = {
    val piece = pieces.indices.indexWhere(i => address >= addresses(i) && address < addresses(i) + pieces(i).capacity)
    if (piece < 0) 0 else address - addresses(piece) + piece.toLong * pieceBytes
  }

  /** Removes the mappings. No thread may read them meanwhile or afterwards. Called once. */
  def close(): Unit = for (i <- pieces.indices) {
    OffHeap.unmapped(addresses(i))
    StorageUtils.dispose(pieces(i))
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

/**
 * The verified parts of an SST. Any number of threads; a thread that misses a block that another has just verified
 * verifies it again, which does no harm.
 */
private[incremental] final class Verified {
  private var blockMarks: Array[Boolean] = _

  /** True if index, filter and properties were found right. */
  @volatile var metadata = false

  /**
   * Returns, for each data block, whether its checksum was found right. All readers of the file share the array.
   *
   * @param count number of data blocks
   */
  def blocks(count: Int): Array[Boolean] = synchronized {
    if (blockMarks == null) blockMarks = new Array[Boolean](count)
    blockMarks
  }
}

/**
 * The parts of files that this process has verified, by file and not by name: a newer base shares most files with the
 * one before, as hard links in a directory of its own. A file is identified by its number on its disk, its length and
 * its time of change, so that a file that was written again counts as another. An entry lives as long as a caller keeps
 * it. Any number of threads.
 */
private[incremental] object Verified {
  private case class FileId(disk: AnyRef, bytes: Long, changed: FileTime)
  private final class Entry(val id: FileId, verified: Verified) extends WeakReference[Verified](verified, forgotten)

  private lazy val forgotten = new ReferenceQueue[Verified]
  private val entries = mutable.HashMap.empty[FileId, Entry]

  /** Returns the entry of the file in its present state, or an empty entry if the file cannot be identified. */
  def of(file: File): Verified = idOf(file).fold(new Verified)(of)

  private def of(id: FileId): Verified = entries.synchronized {
    forget()
    val marks = entries.get(id).map(_.get).orNull
    if (marks != null) marks
    else {
      val verified = new Verified
      entries(id) = new Entry(id, verified)
      verified
    }
  }

  private def forget(): Unit = {
    var gone = forgotten.poll()
    while (gone != null) {
      val id = gone.asInstanceOf[Entry].id
      if (entries.get(id).exists(_ eq gone)) entries -= id
      gone = forgotten.poll()
    }
  }

  private def idOf(file: File): Option[FileId] =
    try {
      val attributes = Files.readAttributes(file.toPath, classOf[BasicFileAttributes])
      Option(attributes.fileKey).map(FileId(_, attributes.size, attributes.lastModifiedTime))
    } catch { case _: IOException => None } // opening the file will report the error
}
