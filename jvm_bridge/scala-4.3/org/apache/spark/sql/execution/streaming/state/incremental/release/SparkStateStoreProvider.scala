package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.execution.streaming.state.{
  StateStoreInstanceMetric, StateStoreProvider, SupportsFineGrainedReplay}

/**
 * How Spark 4.3 calls a provider: snapshots and cleanup apart, at the same time as each other and as tasks.
 * Snapshots have their own schedule here, so only cleanup is left; `doMaintenance` is what a provider gets that
 * is unloaded on commit.
 */
trait SparkStateStoreProvider extends StateStoreProvider with SupportsFineGrainedReplay {
  protected def maintain(): Unit

  override def doCleanupMaintenance(): Unit = maintain()

  override def doMaintenance(): Unit = maintain()

  override def supportedInstanceMetrics: Seq[StateStoreInstanceMetric] = Seq(ReportedMetrics.lastSnapshot)
}
