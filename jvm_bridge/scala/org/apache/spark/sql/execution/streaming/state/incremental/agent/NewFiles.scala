package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.{FileNotFoundException, IOException, OutputStream}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{CommonPathCapabilities, FileAlreadyExistsException, FileSystem, FSDataOutputStream, Path}

import org.apache.spark.sql.execution.streaming.state.incremental.release.SparkNames.{CheckpointFileManager, FileSystemBasedCheckpointFileManager}

/**
 * Makes files of checkpoint storage, each of which appears whole or not at all. Safe for any thread.
 *
 * Where a stream can be aborted (S3A), a file is written under its own name: it appears when the stream is closed, and
 * a rename would be a copy. Where the store also creates on condition that the name is free, one of several writers wins.
 * Elsewhere Spark's manager does it, as for its own checkpoint files.
 *
 * @param root a path of the storage that all files are in
 */
private[agent] final class NewFiles(root: Path, hadoopConf: Configuration, manager: => CheckpointFileManager) {
  private lazy val fileSystem: FileSystem = root.getFileSystem(hadoopConf)

  /** Where there are no directories, either. */
  lazy val isObjectStore: Boolean = can(CommonPathCapabilities.ABORTABLE_STREAM)
  private lazy val hasCondition = can(NewFiles.IfFree)

  /** Makes the file with what `fill` writes. Without `overwrite` it is a FileAlreadyExistsException if there is one. */
  def create(path: Path, overwrite: Boolean)(fill: OutputStream => Unit): Unit =
    if (isObjectStore) put(path, overwrite)(fill)
    else {
      if (!overwrite && manager.exists(path)) throw existsAlready(path, null)
      val before = if (overwrite && mayKeepTheOld) identity(path) else None
      val out = manager.createAtomic(path, overwrite)
      finish(out, () => out.cancel())(fill)
      if (before.isDefined && identity(path) == before) {
        throw new IOException(s"$path was not replaced: the rename of its file system does not, and " +
          "spark.sql.streaming.checkpointFileManagerClass, FileSystemBasedCheckpointFileManager, takes that for done")
      }
    }

  /** That manager keeps a file that a rename does not replace, and says nothing. */
  private def mayKeepTheOld: Boolean = manager.isInstanceOf[FileSystemBasedCheckpointFileManager]

  /** What tells a file from the one that replaces it: a rename keeps the time at which that one was written. */
  private def identity(path: Path): Option[(Long, Long)] =
    try {
      val status = fileSystem.getFileStatus(path)
      Some((status.getModificationTime, status.getLen))
    } catch { case _: FileNotFoundException => None }

  private def put(path: Path, overwrite: Boolean)(fill: OutputStream => Unit): Unit = {
    val conditional = !overwrite && hasCondition
    val builder = fileSystem.createFile(path).recursive().overwrite(overwrite)
    if (conditional) builder.must(NewFiles.IfFree, true)
    val out: FSDataOutputStream = builder.build()
    try finish(out, () => out.abort())(fill)
    catch { case e: IOException if conditional && NewFiles.isRefusal(e) => throw existsAlready(path, e) }
  }

  private def finish(out: OutputStream, abort: () => Unit)(fill: OutputStream => Unit): Unit =
    try {
      fill(out)
      out.close()
    } catch {
      case e: Throwable =>
        try abort()
        catch { case another: Throwable => e.addSuppressed(another) }
        throw e
    }

  private def can(capability: String): Boolean = fileSystem.hasPathCapability(root, capability)

  private def existsAlready(path: Path, cause: Throwable): FileAlreadyExistsException = {
    val e = new FileAlreadyExistsException(s"$path exists")
    e.initCause(cause)
    e
  }
}

private[agent] object NewFiles {
  /** FS_OPTION_CREATE_CONDITIONAL_OVERWRITE of Hadoop 3.4.2 and later; no older one has a path that can do it. */
  private val IfFree = "fs.option.create.conditional.overwrite"

  /**
   * Whether S3 says that a condition does not hold: the name is taken, or what is read was replaced. The exceptions are
   * those of hadoop-aws, which Spark does not bring.
   */
  def isRefusal(e: IOException): Boolean =
    e.getClass.getSimpleName == "RemoteFileChangedException" || String.valueOf(e.getMessage).contains("Status Code: 412")
}
