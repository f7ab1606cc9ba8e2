package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.{BufferedOutputStream, ByteArrayOutputStream, DataOutputStream, FileNotFoundException, OutputStream}
import java.nio.file.{
  FileAlreadyExistsException => NioFileAlreadyExists, FileSystemException, Files, NoSuchFileException, Path => Local,
  Paths
}
import java.nio.file.LinkOption.NOFOLLOW_LINKS
import java.nio.file.StandardCopyOption.ATOMIC_MOVE
import java.nio.file.StandardOpenOption.{CREATE_NEW, WRITE}
import java.nio.file.attribute.PosixFilePermissions
import java.util.UUID
import java.util.zip.CRC32

import org.apache.hadoop.fs.{FileAlreadyExistsException, Path}
import org.apache.hadoop.fs.permission.FsPermission

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
