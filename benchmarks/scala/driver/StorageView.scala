package statestore.benchmark

import java.io.FileNotFoundException

import scala.collection.mutable

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, FileSystem, Path}

/**
 * Files below one directory of checkpoint storage, as any observer sees them. Each `look` lists the
 * directory; a file that was not there before (by path, length and time of change) counts as written. A
 * file that came and went between two looks is missed, so look after every batch. Checksum side files that
 * Hadoop's local file system keeps are storage as well and count. For one thread.
 */
final class StorageView(root: Path, conf: Configuration) {
  private val fs: FileSystem = root.getFileSystem(conf) match {
    case local: org.apache.hadoop.fs.LocalFileSystem => local.getRaw
    case other => other
  }
  private val known = mutable.HashSet.empty[(String, Long, Long)]
  var writtenBytes = 0L
  var writtenFiles = 0L
  var bytes = 0L
  var files = 0L

  def look(): Unit = {
    bytes = 0L
    files = 0L
    val present = mutable.HashSet.empty[(String, Long, Long)]
    visit(root) { status =>
      val key = (status.getPath.toUri.getPath, status.getLen, status.getModificationTime)
      present += key
      bytes += status.getLen
      files += 1
      if (!known.contains(key)) {
        writtenBytes += status.getLen
        writtenFiles += 1
      }
    }
    known.clear()
    known ++= present
  }

  private def visit(directory: Path)(found: FileStatus => Unit): Unit = {
    val entries = try fs.listStatus(directory)
      catch { case _: FileNotFoundException => Array.empty[FileStatus] }
    entries.foreach(entry => if (entry.isDirectory) visit(entry.getPath)(found) else found(entry))
  }
}
