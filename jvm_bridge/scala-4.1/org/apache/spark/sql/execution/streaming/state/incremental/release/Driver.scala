package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.state.{
  RocksDBEventForwarder, StateStore, StateStoreConf, StateStoreCustomMetric, StateStoreId, StateStoreInstanceMetric,
  StateStoreMetrics, StateStoreProvider, StateStoreSnapshotLastUploadInstanceMetric
}

/** The calls of a store on the driver's query. */
object Driver {
  /** Returns the id of the query's run. */
  def runId(hadoopConf: Configuration): String = StateStoreProvider.getRunId(hadoopConf)

  /** Reports a committed version, if the driver checks that every store commits. */
  def reportCommit(conf: StateStoreConf, version: Long, id: StateStoreId, hadoopConf: Configuration): Unit =
    if (conf.commitValidationEnabled) StateStore.reportCommitToCoordinator(version, id, hadoopConf)

  /** Reports an uploaded snapshot, if the driver watches for stores that lag behind. */
  def reportSnapshot(conf: StateStoreConf, version: Long, id: StateStoreId, hadoopConf: Configuration): Unit =
    if (conf.reportSnapshotUploadLag) {
      RocksDBEventForwarder(runId(hadoopConf), id).reportSnapshotUploaded(version)
    }
}

/** The figures of a store as Spark takes them from 4.1 on, with metrics of single stores. */
object ReportedMetrics {
  val none: StateStoreMetrics = StateStoreMetrics(0, 0, Map.empty, Map.empty)

  val lastSnapshot: StateStoreInstanceMetric = StateStoreSnapshotLastUploadInstanceMetric()

  def of(
      id: StateStoreId,
      keys: Long,
      memoryBytes: Long,
      custom: Map[StateStoreCustomMetric, Long],
      lastSnapshotVersion: Long): StateStoreMetrics =
    StateStoreMetrics(keys, memoryBytes, custom,
      Map(lastSnapshot.withNewId(id.partitionId, id.storeName) -> lastSnapshotVersion))
}
