package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.execution.streaming.state.{
  StateStoreInstanceMetric, StateStoreProvider, SupportsFineGrainedReplay}

/** How Spark 4.2 calls a provider: background work is one call. */
trait SparkStateStoreProvider extends StateStoreProvider with SupportsFineGrainedReplay {
  protected def maintain(): Unit

  override def doMaintenance(): Unit = maintain()

  override def supportedInstanceMetrics: Seq[StateStoreInstanceMetric] = Seq(ReportedMetrics.lastSnapshot)
}
