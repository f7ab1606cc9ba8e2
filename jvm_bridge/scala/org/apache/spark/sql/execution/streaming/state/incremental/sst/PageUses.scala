package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.io.{File, IOException, RandomAccessFile}
import java.nio.MappedByteBuffer
import java.nio.channels.FileChannel

import org.apache.spark.sql.execution.streaming.state.incremental.memory.OffHeap
import org.apache.spark.storage.StorageUtils

/**
 * A file with a byte for each page of another file, which is 1 if the page was read since the agent looked, and 2 if it
 * was wanted and not there. The agent evicts pages with 0 first. Any number of threads; a note that is lost does no harm.
 *
 * @param pageBytes length of a page, a power of two
 * @throws java.io.IOException if the file does not exist or cannot be mapped
 */
private[incremental] final class PageUses(file: File, pageBytes: Int) extends AutoCloseable {
  private val shift = Integer.numberOfTrailingZeros(pageBytes)
  private var mapping: MappedByteBuffer = {
    OffHeap.fileUse()
    if (!file.exists) throw new IOException(s"$file is missing, which notes the pages that are read")
    val access = new RandomAccessFile(file, "rw")
    try {
      OffHeap.fileUse()
      access.getChannel.map(FileChannel.MapMode.READ_WRITE, 0, access.length)
    } finally access.close()
  }

  /** Notes that bytes were read. Pages that the file does not have are never evicted. */
  def note(offset: Long, length: Int): Unit = put(offset, length, PageUses.used)

  /** Notes that bytes are not needed any more. */
  def forget(offset: Long, length: Int): Unit = put(offset, length, PageUses.unused)

  /**
   * Notes that bytes are wanted that are not there.
   *
   * @return true if all of them were wanted before, or read, since the agent looked
   */
  def want(offset: Long, length: Int): Boolean = {
    var page = offset >>> shift
    val last = math.min((offset + length - 1) >>> shift, mapping.capacity - 1L)
    var before = true
    while (page <= last) {
      if (mapping.get(page.toInt) == PageUses.unused) {
        before = false
        mapping.put(page.toInt, PageUses.wanted)
      }
      page += 1
    }
    before
  }

  private def put(offset: Long, length: Int, use: Byte): Unit = {
    var page = offset >>> shift
    val last = math.min((offset + length - 1) >>> shift, mapping.capacity - 1L)
    while (page <= last) {
      mapping.put(page.toInt, use)
      page += 1
    }
  }

  /** Closes the file. No thread may note anything meanwhile. May be called repeatedly. */
  def close(): Unit = {
    if (mapping != null) StorageUtils.dispose(mapping)
    mapping = null
  }
}

private object PageUses {
  private val used: Byte = 1
  private val unused: Byte = 0
  private val wanted: Byte = 2
}
