package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.{ByteArrayOutputStream, FilterOutputStream, IOException}
import java.util.Arrays

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{CommonPathCapabilities, FileSystem, FSDataOutputStream, Path}

/**
 * Makes files of an object store that appear whole or not at all, each by one request: under its own name, on condition
 * that the name is free or may be replaced. Safe for any thread.
 */
private[incremental] final class ConditionalFiles private (fileSystem: FileSystem) {
  import ConditionalFiles._

  /**
   * Opens a new file, which appears at `path` when it is closed. Closing it throws FileAlreadyExistsException if the
   * name is taken.
   *
   * @param overwrite true to replace an existing file
   */
  def create(path: Path, overwrite: Boolean): NewFile =
    new NewFile(path, NewFiles.begin(fileSystem, path, overwrite, conditional = !overwrite), !overwrite)

  /** Returns true if the file at `path` has these bytes. */
  private def has(path: Path, bytes: Array[Byte]): Boolean = {
    val in = fileSystem.open(path)
    try Arrays.equals(in.readNBytes(bytes.length + 1), bytes)
    finally in.close()
  }

  /**
   * A file that is being written. One thread at a time.
   *
   * A name that is taken by the same bytes counts as made: the client asks again when it has lost an answer, and is then
   * refused its own file. Two queries that plan a batch write different bytes, because a plan has its time.
   */
  final class NewFile private[ConditionalFiles] (path: Path, out: FSDataOutputStream, conditional: Boolean)
      extends FilterOutputStream(out) {
    private var isOpen = true
    private var kept = if (conditional) Some(new ByteArrayOutputStream) else None

    override def write(byte: Int): Unit = write(Array(byte.toByte), 0, 1)

    override def write(bytes: Array[Byte], at: Int, length: Int): Unit = {
      kept = kept.filter(_.size + length <= MaxKeptBytes)
      kept.foreach(_.write(bytes, at, length))
      out.write(bytes, at, length)
    }

    override def close(): Unit = if (isOpen) {
      isOpen = false
      try out.close()
      catch {
        case e: IOException if conditional && NewFiles.isRefusal(e) =>
          if (!kept.exists(written => has(path, written.toByteArray))) throw NewFiles.existsAlready(path, e)
      }
    }

    /** Ends without a file; does nothing once the file is closed. */
    def cancel(): Unit = if (isOpen) {
      isOpen = false
      out.abort()
    }
  }
}

private[incremental] object ConditionalFiles {
  private val MaxKeptBytes = 4 << 20

  /** Returns such files for a directory; None if its storage cannot abort a file, or knows no condition. */
  def of(root: Path, hadoopConf: Configuration): Option[ConditionalFiles] = {
    val fileSystem = root.getFileSystem(hadoopConf)
    val needed = Seq(CommonPathCapabilities.ABORTABLE_STREAM, NewFiles.IfFree)
    if (needed.forall(fileSystem.hasPathCapability(root, _))) Some(new ConditionalFiles(fileSystem)) else None
  }
}
