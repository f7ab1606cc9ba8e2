package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.io.{File, IOException, RandomAccessFile}
import java.nio.{ByteBuffer, MappedByteBuffer}
import java.nio.channels.FileChannel
import java.nio.file.Files
import java.nio.file.attribute.PosixFilePermissions

import scala.collection.mutable

import org.apache.spark.storage.StorageUtils

/** The local disk of a directory is full or fails. The message is for users, and says what to do. */
private[incremental] final class LocalDiskException(directory: File, cause: IOException)
  extends IOException(
    s"incremental state store [storage]: the state of this batch does not fit into the memory budget, and the local disk " +
      s"of '$directory' failed when a part of it was moved there: ${cause.getMessage}. Free space on that disk of the " +
      "executor, or set spark.sql.streaming.stateStore.incremental.localDir or spark.local.dir to another.",
    cause)

/**
 * A mapped file without a name, given out in pieces: the operating system bounds how many mappings a process has. It
 * goes with the last of its pieces. Any number of threads.
 */
private[memory] final class SpillFile private (mapped: MappedByteBuffer) {
  private var next = 0
  private var pieces = 0

  /** A piece of this many bytes, until a [[release]] for each; null where it has no room, or is gone. */
  private def take(bytes: Int): ByteBuffer = synchronized {
    if (next > 0 && pieces == 0 || mapped.capacity - next < bytes) null
    else {
      val piece = mapped.slice(next, bytes)
      next = math.min(mapped.capacity.toLong, next.toLong + SpillFile.aligned(bytes)).toInt
      pieces += 1
      piece
    }
  }

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

  /** Longer pieces have files of their own. */
  private val mostShared = 64 << 10

  /** A file has room for this many pieces like its first, and for this many bytes at least. */
  private val piecesEach = 16
  private val leastBytes = 128L << 10
  private val alignment = 64L
  private val ownerOnly = PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"))
  private val zeros = ByteBuffer.allocateDirect(1 << 16).asReadOnlyBuffer

  /** The file of each directory that has room for more. */
  private val current = mutable.Map.empty[File, SpillFile]

  /**
   * A piece of a file in that directory; the caller releases it. Its blocks are written at once, so that a full disk is
   * an error here.
   *
   * @param mostBytes no file may be longer
   * @throws LocalDiskException if the disk is full or fails
   */
  def allocate(bytes: Int, mostBytes: Long, directory: File): (SpillFile, ByteBuffer) = {
    val shared = if (bytes > mostShared) None else synchronized(current.get(directory))
    shared.flatMap(file => Option(file.take(bytes)).map(file -> _)).getOrElse {
      val file = create(if (bytes > mostShared) bytes.toLong else sharedBytes(bytes, mostBytes), directory)
      val piece = file.take(bytes)
      if (bytes <= mostShared) synchronized(current.put(directory, file))
      (file, piece)
    }
  }

  private def sharedBytes(bytes: Int, mostBytes: Long): Long =
    math.max(bytes, math.min(mostBytes, math.max(leastBytes, piecesEach * aligned(bytes))))

  private def aligned(bytes: Int): Long = (bytes + alignment - 1) & -alignment

  private def forget(file: SpillFile): Unit = synchronized(current.filterInPlace((_, one) => one ne file))

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
    var left = bytes
    while (left > 0) {
      block.position(0).limit(math.min(left, block.capacity).toInt)
      OffHeap.fileUse()
      left -= channel.write(block)
    }
  }
}
