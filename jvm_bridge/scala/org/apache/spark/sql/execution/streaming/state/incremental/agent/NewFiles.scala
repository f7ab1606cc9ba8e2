package org.apache.spark.sql.execution.streaming.state.incremental.agent

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
import java.util.{Arrays, Collections, UUID, WeakHashMap}
import java.util.concurrent.ConcurrentHashMap
import java.util.zip.CRC32

import scala.util.Using

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{CommonPathCapabilities, FileAlreadyExistsException, FileSystem, FSDataOutputStream, Path}
import org.apache.hadoop.fs.permission.FsPermission

import org.apache.spark.sql.execution.streaming.state.incremental.release.SparkNames.{
  CheckpointFileManager, FileSystemBasedCheckpointFileManager
}

// Files that appear whole or not at all, by kind of storage: any that Spark's manager serves, object stores with
// conditional writes, and the local disk.

/**
 * Makes files of checkpoint storage, each of which appears whole or not at all. Safe for any thread.
 *
 * If a stream can be aborted (S3A), a file is written under its own name: it appears when the stream is closed, and a
 * rename would copy it. If the store can also create a file on condition that the name is free, one of several writers
 * wins. On other storage Spark's manager makes the files, as it makes Spark's own checkpoint files.
 *
 * @param root a path on the storage of all files
 */
private[agent] final class NewFiles(root: Path, hadoopConf: Configuration, manager: => CheckpointFileManager) {
  private lazy val fileSystem: FileSystem = root.getFileSystem(hadoopConf)

  /** True for an object store, which has no directories. */
  lazy val isObjectStore: Boolean = can(CommonPathCapabilities.ABORTABLE_STREAM)
  private lazy val hasCondition = can(NewFiles.IfFree)

  /**
   * Makes a file.
   *
   * @param fill writes its content
   * @throws org.apache.hadoop.fs.FileAlreadyExistsException without `overwrite`, if the file exists
   * @throws java.io.IOException if the file cannot be written or replaced
   */
  def create(path: Path, overwrite: Boolean)(fill: OutputStream => Unit): Unit =
    if (isObjectStore) put(path, overwrite)(fill)
    else {
      if (!overwrite && manager.exists(path)) throw NewFiles.existsAlready(path, null)
      val before = if (overwrite && mayKeepTheOld) identity(path) else None
      val out = manager.createAtomic(path, overwrite)
      NewFiles.finish(out, () => out.cancel())(fill)
      if (before.isDefined && identity(path) == before) {
        throw new IOException(s"$path was not replaced: the rename of its file system does not, and " +
          "spark.sql.streaming.checkpointFileManagerClass, FileSystemBasedCheckpointFileManager, takes that for done")
      }
    }

  /** Returns true for a manager that reports success if its rename leaves an older file in place. */
  private def mayKeepTheOld: Boolean = manager.isInstanceOf[FileSystemBasedCheckpointFileManager]

  /** Returns time and length of a file, if it exists: a new file differs, since a rename keeps the time of writing. */
  private def identity(path: Path): Option[(Long, Long)] =
    try {
      val status = fileSystem.getFileStatus(path)
      Some((status.getModificationTime, status.getLen))
    } catch { case _: FileNotFoundException => None }

  private def put(path: Path, overwrite: Boolean)(fill: OutputStream => Unit): Unit = {
    val conditional = !overwrite && hasCondition
    try NewFiles.fill(NewFiles.begin(fileSystem, path, overwrite, conditional))(fill)
    catch { case e: IOException if conditional && NewFiles.isRefusal(e) => throw NewFiles.existsAlready(path, e) }
  }

  private def can(capability: String): Boolean = fileSystem.hasPathCapability(root, capability)
}

private[agent] object NewFiles {
  /** FS_OPTION_CREATE_CONDITIONAL_OVERWRITE of Hadoop 3.4.2 and later; on older ones no path has the capability. */
  private[agent] val IfFree = "fs.option.create.conditional.overwrite"

  /**
   * Opens a file of an object store, which appears when the stream is closed.
   *
   * @param conditional true to refuse, at the end, a name that is taken: see [[isRefusal]]
   */
  def begin(fileSystem: FileSystem, path: Path, overwrite: Boolean, conditional: Boolean): FSDataOutputStream = {
    val builder = fileSystem.createFile(path).recursive().overwrite(overwrite)
    if (conditional) builder.must(IfFree, true)
    builder.build()
  }

  /** Writes the content of a file that [[begin]] has opened. If that fails, the file does not appear. */
  def fill(out: FSDataOutputStream)(content: OutputStream => Unit): Unit = finish(out, () => out.abort())(content)

  private def finish(out: OutputStream, abort: () => Unit)(fill: OutputStream => Unit): Unit =
    try {
      fill(out)
      out.close()
    } catch {
      case e: Throwable =>
        try abort()
        catch { case other: Throwable => e.addSuppressed(other) }
        throw e
    }

  def existsAlready(path: Path, cause: Throwable): FileAlreadyExistsException = {
    val e = new FileAlreadyExistsException(s"$path exists")
    e.initCause(cause)
    e
  }

  /**
   * Returns true if S3 says that a condition does not hold: the name is taken, or the file that is read was replaced.
   * The exceptions belong to hadoop-aws, which Spark does not bring.
   */
  def isRefusal(e: IOException): Boolean =
    e.getClass.getSimpleName == "RemoteFileChangedException" ||
      String.valueOf(e.getMessage).contains("Status Code: 412")
}

/**
 * Hadoop configurations with which the HDFS client asks sooner whether a file that it closes is complete. If the report
 * of the last block has not reached the NameNode yet, which is usual for small files, Hadoop's client waits 400 ms, and
 * twice as long each time, 5 times; with these it begins with 10 ms, and asks more often, for longer in all. Safe for
 * any thread.
 */
private[incremental] object PromptHdfs {
  private val waits = Map(
    "dfs.client.block.write.locateFollowingBlock.initial.delay.ms" -> "10",
    "dfs.client.block.write.locateFollowingBlock.retries" -> "11")
  private val hadoopsOwn = "hdfs-default.xml"

  /** Copies by their originals: all stores of a query have the same configuration, which is large. */
  private val prompt = Collections.synchronizedMap(new WeakHashMap[Configuration, Configuration])

  /** Returns the configuration for making files in `root`, which keeps the settings of the user. */
  def of(root: Path, hadoopConf: Configuration): Configuration =
    if (root.toUri.getScheme != "hdfs" || waits.keys.exists(isSet(_, hadoopConf))) hadoopConf
    else prompt.computeIfAbsent(hadoopConf,
      conf => {
        val copy = new Configuration(conf)
        waits.foreach { case (name, value) => copy.set(name, value) }
        copy
      })

  private def isSet(name: String, conf: Configuration): Boolean =
    conf.get(name) != null && !Option(conf.getPropertySources(name)).exists(_.forall(_ == hadoopsOwn))
}

/** The manager of checkpoint files behind `CheckpointFiles`: Spark's, or the user's. Safe for any thread. */
private[incremental] object SparksFileManager {
  private val key = "spark.sql.streaming.checkpointFileManagerClass"
  private val ours = s"${getClass.getPackageName.stripSuffix(".agent")}.CheckpointFiles"

  def of(path: Path, hadoopConf: Configuration): CheckpointFileManager =
    if (hadoopConf.get(key) != ours) CheckpointFileManager.create(path, hadoopConf)
    else {
      val without = new Configuration(hadoopConf)
      without.unset(key)
      CheckpointFileManager.create(path, without)
    }
}

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

/**
 * Makes files on a local disk that appear whole or not at all, with the names, permissions and checksums that Hadoop's
 * local file system gives them, but without starting processes. Like Hadoop, it flushes nothing to the disk. Safe for
 * any thread.
 *
 * @param mask bits that Hadoop's configuration removes from the permissions of new files and directories
 */
private[incremental] final class LocalCheckpointFiles(mask: FsPermission) {
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
        case e: NioFileAlreadyExists => throw existsAlready(new Path(directory.toUri), e)
      }
    }

  private def permissions(default: FsPermission) = {
    val mode = default.applyUMask(mask)
    PosixFilePermissions.fromString(mode.getUserAction.SYMBOL + mode.getGroupAction.SYMBOL + mode.getOtherAction.SYMBOL)
  }
}

private[incremental] object LocalCheckpointFiles {
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
        if (Files.exists(target, NOFOLLOW_LINKS)) throw existsAlready(path, null)
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
        case e: NioFileAlreadyExists => throw existsAlready(path, e)
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
      var (at, left) = (offset, length)
      while (left > 0) {
        val part = math.min(unsummedBytes, left)
        crc.update(bytes, at, part)
        at += part
        left -= part
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

  private def existsAlready(path: Path, cause: Throwable) = {
    val e = new FileAlreadyExistsException(s"$path exists")
    e.initCause(cause)
    e
  }
}
