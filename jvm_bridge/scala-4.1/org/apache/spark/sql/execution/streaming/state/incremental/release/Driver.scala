package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.state.{
  RocksDBEventForwarder, StateStore, StateStoreConf, StateStoreId, StateStoreProvider}

/** What a store knows of the driver's query, and tells it. */
object Driver {
  /** The id of the query's run. */
  def runId(hadoopConf: Configuration): String = StateStoreProvider.getRunId(hadoopConf)

  /** Tells that a version was committed, where the driver checks that every store does. */
  def reportCommit(conf: StateStoreConf, version: Long, id: StateStoreId, hadoopConf: Configuration): Unit =
    if (conf.commitValidationEnabled) StateStore.reportCommitToCoordinator(version, id, hadoopConf)

  /** Tells that a snapshot was uploaded, where the driver watches for stores that lag behind. */
  def reportSnapshot(conf: StateStoreConf, version: Long, id: StateStoreId, hadoopConf: Configuration): Unit =
    if (conf.reportSnapshotUploadLag) {
      RocksDBEventForwarder(runId(hadoopConf), id).reportSnapshotUploaded(version)
    }
}
