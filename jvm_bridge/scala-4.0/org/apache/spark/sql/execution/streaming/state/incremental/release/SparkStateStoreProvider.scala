package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.{
  ReadStateStore, RecordType, StateStore, StateStoreProvider, SupportsFineGrainedReplay
}
import org.apache.spark.util.NextIterator

/**
 * The calls that Spark 4.0 makes on a provider: it forces no snapshots, and its state reader names versions without the
 * ids of their checkpoints.
 */
trait SparkStateStoreProvider extends StateStoreProvider with SupportsFineGrainedReplay {
  protected def maintain(): Unit

  def getStore(
      version: Long,
      stateStoreCkptId: Option[String],
      forceSnapshotOnCommit: Boolean,
      loadEmpty: Boolean): StateStore

  def upgradeReadStoreToWriteStore(
      readStore: ReadStateStore,
      version: Long,
      uniqueId: Option[String],
      forceSnapshotOnCommit: Boolean): StateStore

  def replayStateFromSnapshot(
      snapshotVersion: Long,
      endVersion: Long,
      readOnly: Boolean,
      snapshotVersionStateStoreCkptId: Option[String],
      endVersionStateStoreCkptId: Option[String]): StateStore

  def getStateStoreChangeDataReader(
      startVersion: Long,
      endVersion: Long,
      colFamilyNameOpt: Option[String],
      endVersionStateStoreCkptId: Option[String]): NextIterator[(RecordType.Value, UnsafeRow, UnsafeRow, Long)]

  override def getStore(version: Long, stateStoreCkptId: Option[String]): StateStore =
    getStore(version, stateStoreCkptId, forceSnapshotOnCommit = false, loadEmpty = false)

  override def replayStateFromSnapshot(snapshotVersion: Long, endVersion: Long): StateStore =
    replayStateFromSnapshot(snapshotVersion, endVersion, readOnly = false, None, None)

  override def getStateStoreChangeDataReader(
      startVersion: Long,
      endVersion: Long,
      colFamilyNameOpt: Option[String]): NextIterator[(RecordType.Value, UnsafeRow, UnsafeRow, Long)] =
    getStateStoreChangeDataReader(startVersion, endVersion, colFamilyNameOpt, None)

  override def doMaintenance(): Unit = maintain()
}

/** The calls that Spark 4.0 makes on a store, and those of later releases, which nothing makes here. */
trait SparkStateStore extends StateStore with LaterCalls {
  def release(): Unit

  def putList(key: UnsafeRow, values: Array[UnsafeRow], colFamilyName: String): Unit

  def mergeList(key: UnsafeRow, values: Array[UnsafeRow], colFamilyName: String): Unit
}
