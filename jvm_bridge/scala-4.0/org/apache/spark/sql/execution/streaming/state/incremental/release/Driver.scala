package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.StreamExecution
import org.apache.spark.sql.execution.streaming.state.{
  StateStoreConf, StateStoreCustomMetric, StateStoreId, StateStoreMetrics
}

/** The calls of a store on the driver's query. Spark 4.0 takes no reports of commits and snapshots. */
object Driver {
  /** Returns the id of the query's run. */
  def runId(hadoopConf: Configuration): String = {
    val id = hadoopConf.get(StreamExecution.RUN_ID_KEY)
    assert(id != null)
    id
  }

  def reportCommit(conf: StateStoreConf, version: Long, id: StateStoreId, hadoopConf: Configuration): CommitReport =
    () => ()

  def reportSnapshot(conf: StateStoreConf, version: Long, id: StateStoreId, hadoopConf: Configuration): Unit = ()
}

/** The figures of a store as Spark 4.0 takes them, without metrics of single stores. */
object ReportedMetrics {
  val none: StateStoreMetrics = StateStoreMetrics(0, 0, Map.empty)

  def of(
      id: StateStoreId,
      keys: Long,
      memoryBytes: Long,
      custom: Map[StateStoreCustomMetric, Long],
      lastSnapshotVersion: Long): StateStoreMetrics = StateStoreMetrics(keys, memoryBytes, custom)
}

/** A report to the driver that has begun. */
trait CommitReport {
  /** Waits until the driver has the report. A report that fails is logged. */
  def await(): Unit
}
