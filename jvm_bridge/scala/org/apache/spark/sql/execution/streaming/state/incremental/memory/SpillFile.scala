package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.io.{File, IOException, RandomAccessFile}
import java.nio.{ByteBuffer, MappedByteBuffer}
import java.nio.channels.FileChannel
import java.nio.file.Files
import java.nio.file.attribute.PosixFilePermissions

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.incremental.settings.LocalDisks
import org.apache.spark.storage.StorageUtils

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
  private val leastBytes = 128L << 10
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
    math.max(bytes, math.min(maxBytes, math.max(leastBytes, piecesEach * aligned(bytes))))

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
    var left = bytes
    while (left > 0) {
      block.position(0).limit(math.min(left, block.capacity).toInt)
      OffHeap.fileUse()
      left -= channel.write(block)
    }
  }
}
