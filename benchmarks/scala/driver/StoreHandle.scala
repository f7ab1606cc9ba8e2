package statestore.benchmark

import java.io.FileNotFoundException
import java.util.UUID

import scala.collection.mutable

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, FileSystem, Path}

import org.apache.spark.sql.execution.streaming.state._

/**
 * A store of a provider: its provider instance and its present version, with a checkpoint id if the provider has them.
 * One thread at a time.
 */
final class StoreHandle(
    id: StateStoreId,
    keys: KeyLayout,
    values: ValueLayout,
    storeConf: StateStoreConf,
    hadoopConf: Configuration) {

  private var instance: StateStoreProvider = _
  private var checkpointId: Option[String] = None
  var version = 0L

  def provider: StateStoreProvider = instance

  /** Creates a fresh provider instance, as a task on a new executor does. */
  def start(): Unit =
    instance = StateStoreProvider.createAndInit(
      StateStoreProviderId(id, UUID.randomUUID()), keys.schema, values.schema,
      keys.encoderSpec, useColumnFamilies = false, storeConf, new Configuration(hadoopConf),
      useMultipleValuesPerKey = false, None)

  def open(): StateStore = instance.getStore(version, checkpointId)

  def commit(store: StateStore): Unit = {
    version = store.commit()
    if (storeConf.enableStateStoreCheckpointIds)
      checkpointId = store.getStateStoreCheckpointInfo().stateStoreCkptId
  }

  def stop(): Unit = if (instance != null) {
    instance.close()
    instance = null
  }
}

/**
 * The files below one directory of checkpoint storage, as an observer sees them. Each `look` lists the directory; a
 * file that is new (by path, length and time of change) counts as written. A file that exists only between two looks is
 * missed, so look after each batch. Hadoop's checksum side files are storage as well, and count. One thread.
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
    val entries =
      try fs.listStatus(directory)
      catch { case _: FileNotFoundException => Array.empty[FileStatus] }
    entries.foreach(entry => if (entry.isDirectory) visit(entry.getPath)(found) else found(entry))
  }
}
