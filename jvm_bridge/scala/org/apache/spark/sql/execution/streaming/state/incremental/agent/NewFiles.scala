package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.{FileNotFoundException, IOException, OutputStream}
import java.util.{Collections, WeakHashMap}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{CommonPathCapabilities, FileAlreadyExistsException, FileSystem, FSDataOutputStream, Path}

import org.apache.spark.sql.execution.streaming.state.incremental.release.SparkNames.{
  CheckpointFileManager, FileSystemBasedCheckpointFileManager
}

// Files of checkpoint storage that appear whole or not at all, and the manager that makes them on most kinds of it.

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

private[incremental] object NewFiles {
  /** FS_OPTION_CREATE_CONDITIONAL_OVERWRITE of Hadoop 3.4.2 and later; on older ones no path has the capability. */
  val IfFree = "fs.option.create.conditional.overwrite"

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
private[incremental] object ImpatientHdfsClient {
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
