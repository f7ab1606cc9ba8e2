package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.io.{File, IOException}
import java.lang.ref.{ReferenceQueue, WeakReference}
import java.nio.file.Files
import java.nio.file.attribute.{BasicFileAttributes, FileTime}

import scala.collection.mutable

/**
 * The verified parts of an SST. Any number of threads; a thread that misses a block that another has just verified
 * verifies it again, which does no harm.
 */
private[incremental] final class Verified {
  private var known: Array[Boolean] = _

  /** True if index, filter and properties were found right. */
  @volatile var metadata = false

  /**
   * Returns, for each data block, whether its checksum was found right. All readers of the file share the array.
   *
   * @param count number of data blocks
   */
  def blocks(count: Int): Array[Boolean] = synchronized {
    if (known == null || known.length != count) known = new Array[Boolean](count)
    known
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
    val known = entries.get(id).map(_.get).orNull
    if (known != null) known
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
      val found = Files.readAttributes(file.toPath, classOf[BasicFileAttributes])
      Option(found.fileKey).map(FileId(_, found.size, found.lastModifiedTime))
    } catch { case _: IOException => None } // opening the file will report the error
}
