package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.{ByteArrayOutputStream, FileNotFoundException, FilterOutputStream, IOException}
import java.net.URI
import java.util.Arrays
import java.util.concurrent.ConcurrentHashMap

import scala.util.Using

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{CommonPathCapabilities, FileSystem, FSDataOutputStream, Path}

/**
 * Makes files of an object store that appear whole or not at all, each by one request: under its own name, on condition
 * that the name is free or may be replaced. Safe for any thread.
 *
 * Some services take the condition and ignore it. So the first file of a process in a bucket is written a second time,
 * with the same bytes, which the service has to refuse.
 */
private[incremental] final class ConditionalFiles private (fileSystem: FileSystem) {
  import ConditionalFiles._

  /**
   * Opens a new file, which appears at `path` when it is closed. Closing it throws FileAlreadyExistsException if the
   * name is taken, and another IOException if the service ignores the condition.
   *
   * @param overwrite true to replace an existing file
   */
  def create(path: Path, overwrite: Boolean): NewFile =
    new NewFile(path, NewFiles.begin(fileSystem, path, overwrite, conditional = !overwrite), !overwrite)

  /**
   * Writes a file that was just made once more. Does nothing if the service has refused such a file before, and decides
   * nothing if this request fails.
   *
   * @throws java.io.IOException if the service replaces the file
   */
  private def checkRefusal(path: Path, bytes: Array[Byte]): Unit = if (!Refusing.contains(fileSystem.getUri)) {
    val replaced =
      try {
        NewFiles.fill(NewFiles.begin(fileSystem, path, overwrite = false, conditional = true))(_.write(bytes))
        true
      } catch {
        case e: IOException =>
          if (NewFiles.isRefusal(e)) Refusing.add(fileSystem.getUri)
          false
      }
    if (replaced) throw new IOException(s"${fileSystem.getUri} ignores the condition that a file is new: it replaced " +
      s"$path. Two drivers that write one log would not notice each other. Use a service with conditional writes " +
      s"(If-None-Match), or set spark.hadoop.$Switch=false, with which Spark makes the files of its logs by renames")
  }

  /**
   * Returns true if there is a file. S3A asks for it by one request when it opens the file, and reads nothing; a status
   * would take a listing, too, since the name may be one of a directory.
   *
   * @throws java.io.IOException if that cannot be told
   */
  def exists(path: Path): Boolean =
    try {
      fileSystem.open(path).close()
      true
    } catch { case _: FileNotFoundException => false }

  /** Returns true if the file at `path` has these bytes. */
  private def has(path: Path, bytes: Array[Byte]): Boolean =
    Using.resource(fileSystem.open(path))(in => Arrays.equals(in.readNBytes(bytes.length + 1), bytes))

  /**
   * A file that is being written. One thread at a time.
   *
   * A name that is taken by the same bytes counts as made: the client asks again when it has lost an answer, and is then
   * refused its own file. Two drivers that plan a batch write different bytes, because a plan has its time. In
   * checkpoint format 1 the entry that commits a batch has the same bytes from any driver: two that run the batch of one
   * plan both count it as committed, and the plan of the next batch refuses one of them.
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
      try {
        out.close()
        kept.foreach(written => checkRefusal(path, written.toByteArray))
      } catch {
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

  /** Hadoop's switch of conditions in S3A, on by default. */
  private val Switch = "fs.s3a.create.conditional.enabled"

  /** The buckets whose service has refused a file whose name was taken. */
  private val Refusing = ConcurrentHashMap.newKeySet[URI]

  /** Returns such files for a directory; None if its storage cannot abort a file, or knows no condition. */
  def of(root: Path, hadoopConf: Configuration): Option[ConditionalFiles] = {
    val fileSystem = root.getFileSystem(hadoopConf)
    val needed = Seq(CommonPathCapabilities.ABORTABLE_STREAM, NewFiles.IfFree)
    if (needed.forall(fileSystem.hasPathCapability(root, _))) Some(new ConditionalFiles(fileSystem)) else None
  }
}
