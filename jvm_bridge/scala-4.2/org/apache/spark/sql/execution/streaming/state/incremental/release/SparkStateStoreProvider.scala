package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.execution.streaming.state.{
  StateStore, StateStoreInstanceMetric, StateStoreProvider, SupportsFineGrainedReplay
}

/** Passes Spark 4.2's one call for background work, `doMaintenance`, on to `maintain`. */
trait SparkStateStoreProvider extends StateStoreProvider with SupportsFineGrainedReplay {
  protected def maintain(): Unit

  override def doMaintenance(): Unit = maintain()

  override def supportedInstanceMetrics: Seq[StateStoreInstanceMetric] = Seq(ReportedMetrics.lastSnapshot)
}

/** The calls that Spark 4.2 makes on a store. */
trait SparkStateStore extends StateStore
