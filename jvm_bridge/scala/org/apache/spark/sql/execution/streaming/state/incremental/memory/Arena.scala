package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.io.{File, IOException, RandomAccessFile}
import java.nio.{ByteBuffer, MappedByteBuffer}
import java.nio.channels.FileChannel
import java.nio.file.Files
import java.nio.file.attribute.PosixFilePermissions
import java.util.concurrent.atomic.AtomicBoolean

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.incremental.settings.LocalDisks
import org.apache.spark.storage.StorageUtils

// Memory outside the heap for records: an arena has segments, and a segment is memory of the budget or of a file on
// disk.

/**
 * Memory for records, given out one after the other and freed all at once. Segments grow with the arena, so that small
 * batches take little; a record larger than a segment gets its own. One thread at a time.
 *
 * @param memory the budget
 * @param spillDirectory directory of files for segments that the budget has no room for
 */
private[incremental] final class Arena(memory: StoreMemory, spillDirectory: File) {
  private var segments = new Array[Segment](4)
  private var ends = new Array[Long](4)
  private var count = 0
  private var next = 0L
  private var end = 0L

  /** Bytes of all segments, and of those that lie in files. */
  var bytes = 0L
  var spilledBytes = 0L

  /**
   * Returns the address of this many bytes, with any content.
   *
   * @param size bytes, a multiple of 8
   * @throws LocalDiskException if the budget is full and the disk, too
   */
  def allocate(size: Long): Long = {
    if (end - next < size) grow(size)
    val at = next
    next += size
    at
  }

  private def grow(size: Long): Unit = {
    val growing = if (bytes < Arena.mediumSegment) bytes else math.max(Arena.mediumSegment, bytes / 4)
    val largest = math.min(Arena.largestSegment, memory.largestPieceBytes)
    val standard = math.min(largest, math.max(Arena.smallestSegment, growing)) & ~7L
    val own = size > standard
    val segment = memory.allocate(if (own) size else standard, spillDirectory)
    if (count == segments.length) {
      segments = java.util.Arrays.copyOf(segments, count * 2)
      ends = java.util.Arrays.copyOf(ends, count * 2)
    }
    if (count > 0) ends(count - 1) = next
    segments(count) = segment
    count += 1
    bytes += segment.bytes
    if (segment.spilled) spilledBytes += segment.bytes
    next = segment.address
    end = segment.address + segment.bytes
  }

  /** Passes each record that was allocated to a function, overwritten ones included, in order. */
  def foreach(use: Long => Unit): Unit = {
    val walk = new ArenaWalk(this)
    var record = walk.next()
    while (record != 0) {
      use(record)
      record = walk.next()
    }
  }

  def segmentCount: Int = count
  def segmentStart(i: Int): Long = segments(i).address
  def segmentEnd(i: Int): Long = if (i == count - 1) next else ends(i)

  /** Returns true if an address lies in the arena. */
  def holds(address: Long): Boolean = {
    var i = 0
    while (i < count) {
      if (address >= segments(i).address && address < segments(i).address + segments(i).bytes) return true
      i += 1
    }
    false
  }

  /** Returns the segments, each with the end of its records. */
  def parts: Seq[(Segment, Long)] = Seq.tabulate(count)(i => segments(i) -> segmentEnd(i))

  /** Gives the segments to the caller of [[parts]]; the arena is empty afterwards. */
  def giveAway(): Unit = forget()

  def free(): Unit = {
    var i = 0
    while (i < count) {
      segments(i).free()
      i += 1
    }
    forget()
  }

  private def forget(): Unit = {
    count = 0
    next = 0
    end = 0
    bytes = 0
    spilledBytes = 0
  }
}

private[incremental] object Arena {
  val smallestSegment: Long = 4L << 10

  /** Up to this size an arena doubles, so that a few records take little; then it grows by a quarter. */
  private val mediumSegment: Long = 64L << 10
  val largestSegment: Long = 4L << 20
}

/**
 * A walk over the records of places that no longer grow, overwritten ones included, in order. One thread.
 *
 * @param starts address at which each place begins
 * @param ends address at which the last record of each place ends
 */
private[incremental] final class ArenaWalk(starts: Array[Long], ends: Array[Long]) {
  def this(arena: Arena) =
    this(Array.tabulate(arena.segmentCount)(arena.segmentStart), Array.tabulate(arena.segmentCount)(arena.segmentEnd))

  private var segment = -1
  private var at = 0L
  private var end = 0L

  /** Fills an array with the next records. Returns their number, less than the array's length at the end. */
  def next(records: Array[Long]): Int = {
    var n = 0
    while (n < records.length && {
        records(n) = next()
        records(n) != 0
      }) n += 1
    n
  }

  /** Returns the next record, or 0 at the end. */
  def next(): Long = {
    while (at == end && segment + 1 < starts.length) {
      segment += 1
      at = starts(segment)
      end = ends(segment)
    }
    if (at == end) 0
    else {
      val record = at
      at += Record.size(record)
      record
    }
  }
}

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

/** The local disk of a directory is full or fails. The message tells users how to go on. */
private[incremental] final class LocalDiskException(directory: File, cause: IOException)
    extends IOException(
      s"incremental state store [storage]: the state of this batch does not fit into the memory budget, and the local disk " +
        s"of '$directory' failed when a part of it was moved there: ${LocalDisks.reason(cause)}. " +
        LocalDisks.remedy(cause),
      cause)

/**
 * A mapped file without a name, given out in pieces, since the operating system bounds the number of mappings of a
 * process. It is removed with the last of its pieces. Any number of threads.
 */
private[memory] final class SpillFile private (mapped: MappedByteBuffer) {
  private var next = 0
  private var pieces = 0

  /** Takes a piece of the file; each needs one [[release]]. Returns null if the file has no room or is gone. */
  private def take(bytes: Int): ByteBuffer = synchronized {
    if (next > 0 && pieces == 0 || mapped.capacity - next < bytes) null
    else {
      val piece = mapped.slice(next, bytes)
      next = math.min(mapped.capacity.toLong, next.toLong + SpillFile.aligned(bytes)).toInt
      pieces += 1
      piece
    }
  }

  /** Gives a piece back. */
  def release(): Unit = {
    val isLast = synchronized {
      pieces -= 1
      pieces == 0
    }
    if (isLast) {
      SpillFile.forget(this)
      StorageUtils.dispose(mapped)
    }
  }
}

private[memory] object SpillFile {

  /** The longest piece that shares a file with others. */
  private val maxShared = 64 << 10

  /** Sizes of a shared file: the number of pieces like its first for which it has room, and its least length. */
  private val piecesEach = 16
  private val minBytes = 128L << 10
  private val alignment = 64L
  private val ownerOnly = PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"))
  private val zeros = ByteBuffer.allocateDirect(1 << 16).asReadOnlyBuffer

  /** For each directory the file that has room for more pieces. */
  private val current = mutable.Map.empty[File, SpillFile]

  /**
   * Allocates a piece of a file in a directory. The caller releases it. Its blocks are written at once, so that a full
   * disk fails here.
   *
   * @param maxBytes the longest length of a file
   * @throws LocalDiskException if the disk is full or fails
   */
  def allocate(bytes: Int, maxBytes: Long, directory: File): (SpillFile, ByteBuffer) = {
    val shared = if (bytes > maxShared) None else synchronized(current.get(directory))
    shared.flatMap(file => Option(file.take(bytes)).map(file -> _)).getOrElse {
      val file = create(if (bytes > maxShared) bytes.toLong else sharedBytes(bytes, maxBytes), directory)
      val piece = file.take(bytes)
      if (bytes <= maxShared) synchronized(current.put(directory, file))
      (file, piece)
    }
  }

  private def sharedBytes(bytes: Int, maxBytes: Long): Long =
    math.max(bytes, math.min(maxBytes, math.max(minBytes, piecesEach * aligned(bytes))))

  private def aligned(bytes: Int): Long = (bytes + alignment - 1) & -alignment

  private def forget(file: SpillFile): Unit = synchronized(current.filterInPlace((_, other) => other ne file))

  private def create(bytes: Long, directory: File): SpillFile =
    try createNew(bytes, directory)
    catch { case e: IOException => throw new LocalDiskException(directory, e) }

  private def createNew(bytes: Long, directory: File): SpillFile = {
    OffHeap.fileUse()
    Files.createDirectories(directory.toPath, ownerOnly)
    val file = File.createTempFile("spill", ".tmp", directory)
    try {
      val channel = new RandomAccessFile(file, "rw").getChannel
      try {
        fill(channel, bytes)
        OffHeap.fileUse()
        new SpillFile(channel.map(FileChannel.MapMode.READ_WRITE, 0, bytes))
      } finally channel.close()
    } finally file.delete()
  }

  private def fill(channel: FileChannel, bytes: Long): Unit = {
    val block = zeros.duplicate
    var rest = bytes
    while (rest > 0) {
      block.position(0).limit(math.min(rest, block.capacity).toInt)
      OffHeap.fileUse()
      rest -= channel.write(block)
    }
  }
}
