package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.{
  BufferedOutputStream, ByteArrayOutputStream, DataOutputStream, FileNotFoundException, FilterOutputStream, IOException,
  OutputStream
}
import java.net.URI
import java.nio.file.{
  FileAlreadyExistsException => NioFileAlreadyExists, Files, FileSystemException, NoSuchFileException, Path => Local,
  Paths
}
import java.nio.file.attribute.PosixFilePermissions
import java.nio.file.LinkOption.NOFOLLOW_LINKS
import java.nio.file.StandardCopyOption.ATOMIC_MOVE
import java.nio.file.StandardOpenOption.{CREATE_NEW, WRITE}
import java.util.{Arrays, UUID}
import java.util.concurrent.ConcurrentHashMap
import java.util.zip.CRC32

import scala.util.Using

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{
  CommonPathCapabilities, FileStatus, FileSystem, FSDataInputStream, FSDataOutputStream, Path, PathFilter
}
import org.apache.hadoop.fs.local.LocalFs
import org.apache.hadoop.fs.permission.FsPermission

import org.apache.spark.sql.execution.streaming.state.incremental.agent.{
  ImpatientHdfsClient, NewFiles, SparksFileManager
}
import org.apache.spark.sql.execution.streaming.state.incremental.release.SparkNames.CheckpointFileManager

/**
 * A manager of Spark's checkpoint files: the logs of queries, two files and one for each source in each batch. It makes
 * files on a local disk itself, with a few system calls, because Hadoop without its native library starts four
 * processes for each file. In an object store that takes a condition (S3A of Hadoop 3.4.2 and later) it makes a file by
 * one request, where a rename would copy it. On other storage it calls Spark's own manager; the client of HDFS asks
 * sooner than by default whether a file is complete.
 * `spark.sql.streaming.checkpointFileManagerClass` names this class. For any thread.
 *
 * @param path the directory that the files lie in
 * @param hadoopConf the configuration of its file system
 */
class CheckpointFiles(path: Path, hadoopConf: Configuration) extends CheckpointFileManager {
  private val sparks = SparksFileManager.of(path, ImpatientHdfsClient.of(path, hadoopConf))
  private val fileSystem = path.getFileSystem(hadoopConf)
  private val local =
    if (CheckpointFiles.isPlain(qualified(path), hadoopConf) && sparks.isLocal) {
      Some(new LocalCheckpointFiles(FsPermission.getUMask(hadoopConf)))
    } else None

  private val conditional = ConditionalFiles.of(path, hadoopConf)

  private def qualified(path: Path): Path = fileSystem.makeQualified(path)

  override def createAtomic(
      path: Path,
      overwriteIfPossible: Boolean): CheckpointFileManager.CancellableFSDataOutputStream =
    local.map(files => new NewCheckpointFile(files.create(qualified(path), overwriteIfPossible)))
      .orElse(conditional.map(files => new NewStoredFile(files.create(path, overwriteIfPossible))))
      .getOrElse(sparks.createAtomic(path, overwriteIfPossible))

  override def mkdirs(path: Path): Unit = local match {
    case Some(files) => files.makeDirectories(qualified(path))
    case None => sparks.mkdirs(path)
  }

  override def createCheckpointDirectory(): Path =
    if (local.isEmpty) sparks.createCheckpointDirectory()
    else {
      mkdirs(path)
      qualified(path)
    }

  override def open(path: Path): FSDataInputStream = sparks.open(path)
  override def list(path: Path, filter: PathFilter): Array[FileStatus] = sparks.list(path, filter)

  override def exists(path: Path): Boolean =
    conditional.filter(_ => CheckpointFiles.isEntry(path)).fold(sparks.exists(path))(_.exists(path))

  override def delete(path: Path): Unit = sparks.delete(path)
  override def isLocal: Boolean = sparks.isLocal
}

private object CheckpointFiles {
  private val implementation = "fs.AbstractFileSystem.file.impl"

  /** Returns true for an entry of a query's logs, which is a file. Numbers also name directories elsewhere. */
  private def isEntry(path: Path): Boolean = path.getName.forall(_.isDigit) && {
    val log = path.getParent
    log != null && (log.getName == "offsets" || log.getName == "commits" ||
      log.getParent != null && log.getParent.getName == "sources")
  }

  /** Returns true if the files belong to Hadoop's local file system, and no other class takes its place. */
  private def isPlain(path: Path, hadoopConf: Configuration): Boolean =
    path.toUri.getScheme == "file" && hadoopConf.get(implementation, classOf[LocalFs].getName) == classOf[
      LocalFs].getName
}

/** A local file that is being written, as the stream that Spark expects. */
private final class NewCheckpointFile(file: LocalCheckpointFiles.NewFile)
    extends CheckpointFileManager.CancellableFSDataOutputStream(file) {
  override def close(): Unit = synchronized { super.close() }
  override def cancel(): Unit = synchronized { file.cancel() }
}

/** A file of an object store that is being written, as the stream that Spark expects. */
private final class NewStoredFile(file: ConditionalFiles#NewFile)
    extends CheckpointFileManager.CancellableFSDataOutputStream(file) {
  override def close(): Unit = synchronized { super.close() }
  override def cancel(): Unit = synchronized { file.cancel() }
}

/**
 * Makes files of an object store that appear whole or not at all, each by one request: under its own name, on condition
 * that the name is free or may be replaced. Safe for any thread.
 *
 * Some services take the condition and ignore it. So the first file of a process in a bucket is written a second time,
 * with the same bytes, which the service has to refuse.
 */
private final class ConditionalFiles private (fileSystem: FileSystem) {
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
    private var content = if (conditional) Some(new ByteArrayOutputStream) else None

    override def write(byte: Int): Unit = write(Array(byte.toByte), 0, 1)

    override def write(bytes: Array[Byte], at: Int, length: Int): Unit = {
      content = content.filter(_.size + length <= MaxKeptBytes)
      content.foreach(_.write(bytes, at, length))
      out.write(bytes, at, length)
    }

    override def close(): Unit = if (isOpen) {
      isOpen = false
      try {
        out.close()
        content.foreach(written => checkRefusal(path, written.toByteArray))
      } catch {
        case e: IOException if conditional && NewFiles.isRefusal(e) =>
          if (!content.exists(written => has(path, written.toByteArray))) throw NewFiles.existsAlready(path, e)
      }
    }

    /** Ends without a file; does nothing once the file is closed. */
    def cancel(): Unit = if (isOpen) {
      isOpen = false
      out.abort()
    }
  }
}

private object ConditionalFiles {
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

/**
 * Makes files on a local disk that appear whole or not at all, with the names, permissions and checksums that Hadoop's
 * local file system gives them, but without starting processes. Like Hadoop, it flushes nothing to the disk. Safe for
 * any thread.
 *
 * @param mask bits that Hadoop's configuration removes from the permissions of new files and directories
 */
private final class LocalCheckpointFiles(mask: FsPermission) {
  import LocalCheckpointFiles._

  /**
   * Opens a new file, which appears at `path` when it is closed.
   *
   * @param overwrite true to replace an existing file
   * @throws java.io.FileNotFoundException if its directory does not exist
   */
  def create(path: Path, overwrite: Boolean): NewFile = {
    val target = local(path)
    val temporary = target.resolveSibling(s".${target.getFileName}.${UUID.randomUUID}.tmp")
    val out =
      try new BufferedOutputStream(Files.newOutputStream(temporary, CREATE_NEW, WRITE))
      catch { case e: NoSuchFileException => throw missing(path, e) }
    new NewFile(path, temporary, target, out, overwrite, permissions(FsPermission.getFileDefault))
  }

  /** Makes a directory and its missing parents. */
  def makeDirectories(path: Path): Unit = make(local(path))

  private def make(directory: Local): Unit =
    if (!Files.isDirectory(directory)) {
      Option(directory.getParent).foreach(make)
      try {
        Files.createDirectory(directory)
        Files.setPosixFilePermissions(directory, permissions(FsPermission.getDirDefault))
      } catch {
        case _: NioFileAlreadyExists if Files.isDirectory(directory) => // another thread made it
        case e: NioFileAlreadyExists => throw NewFiles.existsAlready(new Path(directory.toUri), e)
      }
    }

  private def permissions(default: FsPermission) = {
    val mode = default.applyUMask(mask)
    PosixFilePermissions.fromString(mode.getUserAction.SYMBOL + mode.getGroupAction.SYMBOL + mode.getOtherAction.SYMBOL)
  }
}

private object LocalCheckpointFiles {
  private val ChecksumHeader = Array[Byte]('c', 'r', 'c', 0)
  private val BytesPerChecksum = 512

  /** An unfinished file, for one thread: `close` publishes it, `cancel` drops it; a second call does nothing. */
  final class NewFile(
      path: Path,
      temporary: Local,
      target: Local,
      out: OutputStream,
      overwrite: Boolean,
      permissions: java.util.Set[java.nio.file.attribute.PosixFilePermission])
      extends OutputStream {
    private val sums = new Checksums
    private var isOver = false

    override def write(byte: Int): Unit = write(Array(byte.toByte), 0, 1)

    override def write(bytes: Array[Byte], offset: Int, length: Int): Unit = {
      out.write(bytes, offset, length)
      sums.add(bytes, offset, length)
    }

    override def close(): Unit = if (!isOver) {
      isOver = true
      try {
        out.close()
        Files.setPosixFilePermissions(temporary, permissions)
        show()
      } catch {
        case e: Throwable =>
          temporary.toFile.delete()
          throw e
      }
    }

    def cancel(): Unit = if (!isOver) {
      isOver = true
      try out.close()
      finally temporary.toFile.delete()
    }

    /**
     * Publishes the file. The checksum of an older file of this name goes first, because it would make readers refuse
     * the new one. The new checksum comes last, from the writer that won: a file without a checksum is read as it is.
     */
    private def show(): Unit = {
      val checksum = target.resolveSibling(s".${target.getFileName}.crc")
      if (overwrite) {
        Files.deleteIfExists(checksum)
        Files.move(temporary, target, ATOMIC_MOVE)
      } else {
        if (Files.exists(target, NOFOLLOW_LINKS)) throw NewFiles.existsAlready(path, null)
        Files.deleteIfExists(checksum)
        link()
      }
      val fresh = target.resolveSibling(s".${target.getFileName}.${UUID.randomUUID}.crc.tmp")
      Files.write(fresh, sums.toBytes, CREATE_NEW, WRITE)
      Files.setPosixFilePermissions(fresh, permissions)
      Files.move(fresh, checksum, ATOMIC_MOVE)
    }

    /** Links the file under its name: unlike a rename, a link never replaces a file. Without links it has to rename. */
    private def link(): Unit = {
      try Files.createLink(target, temporary)
      catch {
        case e: NioFileAlreadyExists => throw NewFiles.existsAlready(path, e)
        case _: FileSystemException | _: UnsupportedOperationException =>
          Files.move(temporary, target, ATOMIC_MOVE)
      }
      temporary.toFile.delete() // the file is there, whether its other name goes or not
    }

  }

  /** The content of Hadoop's checksum file: a CRC-32 for each 512 bytes. */
  private final class Checksums {
    private val crc = new CRC32
    private val content = new ByteArrayOutputStream
    private val sums = new DataOutputStream(content)
    private var unsummedBytes = BytesPerChecksum
    sums.write(ChecksumHeader)
    sums.writeInt(BytesPerChecksum)

    def add(bytes: Array[Byte], offset: Int, length: Int): Unit = {
      var (at, restLength) = (offset, length)
      while (restLength > 0) {
        val part = math.min(unsummedBytes, restLength)
        crc.update(bytes, at, part)
        at += part
        restLength -= part
        unsummedBytes -= part
        if (unsummedBytes == 0) end()
      }
    }

    def toBytes: Array[Byte] = {
      if (unsummedBytes < BytesPerChecksum) end()
      content.toByteArray
    }

    private def end(): Unit = {
      sums.writeInt(crc.getValue.toInt)
      crc.reset()
      unsummedBytes = BytesPerChecksum
    }
  }

  private def local(path: Path): Local = Paths.get(path.toUri.getPath)

  private def missing(path: Path, cause: Throwable) = {
    val e = new FileNotFoundException(s"the directory of $path does not exist")
    e.initCause(cause)
    e
  }
}
