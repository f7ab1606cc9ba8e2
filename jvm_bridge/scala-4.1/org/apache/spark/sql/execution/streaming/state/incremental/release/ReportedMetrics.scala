package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.execution.streaming.state.{
  StateStoreCustomMetric, StateStoreId, StateStoreInstanceMetric, StateStoreMetrics,
  StateStoreSnapshotLastUploadInstanceMetric}

/** The figures of a store as Spark takes them from 4.1 on: with the metrics of single stores. */
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
