package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.execution.streaming.state.{
  ReadStateStore, StateStore, StateStoreInstanceMetric, StateStoreProvider, SupportsFineGrainedReplay
}

/** The calls that Spark 4.1 makes on a provider: it forces no snapshots. */
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

  override def getStore(version: Long, stateStoreCkptId: Option[String]): StateStore =
    getStore(version, stateStoreCkptId, forceSnapshotOnCommit = false, loadEmpty = false)

  override def upgradeReadStoreToWriteStore(
      readStore: ReadStateStore, version: Long, uniqueId: Option[String]): StateStore =
    upgradeReadStoreToWriteStore(readStore, version, uniqueId, forceSnapshotOnCommit = false)

  override def doMaintenance(): Unit = maintain()

  override def supportedInstanceMetrics: Seq[StateStoreInstanceMetric] = Seq(ReportedMetrics.lastSnapshot)
}

/** The calls that Spark 4.1 makes on a store, and those of later releases, which nothing makes here. */
trait SparkStateStore extends StateStore with LaterCalls
