package org.apache.spark.sql.execution.streaming.state.incremental

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, FSDataInputStream, Path, PathFilter}
import org.apache.hadoop.fs.local.LocalFs
import org.apache.hadoop.fs.permission.FsPermission

import org.apache.spark.sql.execution.streaming.state.incremental.agent.{
  ConditionalFiles, LocalCheckpointFiles, PromptHdfs, SparksFileManager
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
  private val sparks = SparksFileManager.of(path, PromptHdfs.of(path, hadoopConf))
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
