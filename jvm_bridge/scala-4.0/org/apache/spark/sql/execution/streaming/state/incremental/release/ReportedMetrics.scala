package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.execution.streaming.state.{StateStoreCustomMetric, StateStoreId, StateStoreMetrics}

/** The figures of a store as Spark 4.0 takes them: it knows no metrics of single stores. */
object ReportedMetrics {
  val none: StateStoreMetrics = StateStoreMetrics(0, 0, Map.empty)

  def of(
      id: StateStoreId,
      keys: Long,
      memoryBytes: Long,
      custom: Map[StateStoreCustomMetric, Long],
      lastSnapshotVersion: Long): StateStoreMetrics = StateStoreMetrics(keys, memoryBytes, custom)
}
