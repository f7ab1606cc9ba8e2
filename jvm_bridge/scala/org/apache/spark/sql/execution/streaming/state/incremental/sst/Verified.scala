package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.io.{File, IOException}
import java.lang.ref.{ReferenceQueue, WeakReference}
import java.nio.file.Files
import java.nio.file.attribute.{BasicFileAttributes, FileTime}

import scala.collection.mutable

/** What was verified of an SST. Any number of threads; that one misses what another has just verified does no harm. */
private[incremental] final class Verified {
  private var known: Array[Boolean] = _

  /** Whether its index, filter and properties were found right. */
  @volatile var metadata = false

  /** For each of this many data blocks, whether its checksum was found right: all readers of the file share it. */
  def blocks(count: Int): Array[Boolean] = synchronized {
    if (known == null || known.length != count) known = new Array[Boolean](count)
    known
  }
}

/**
 * What this process has verified, by file rather than by name: a newer base has most of its files in common with the one
 * before, as hard links in a directory of its own. A file is known by its number on its disk, its length and its time of
 * change, so that one that was written again is another. Kept as long as somebody keeps the answer. Any number of threads.
 */
private[incremental] object Verified {
  private case class FileId(disk: AnyRef, bytes: Long, changed: FileTime)
  private final class Entry(val id: FileId, verified: Verified) extends WeakReference[Verified](verified, forgotten)

  private lazy val forgotten = new ReferenceQueue[Verified]
  private val entries = mutable.HashMap.empty[FileId, Entry]

  /** That of the file as it is now; of one that cannot be told from others, nothing. */
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
    } catch { case _: IOException => None } // whoever opens it will say what is wrong
}
