package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.execution.streaming.state.{
  KeyStateEncoderSpec, StateStore, StateStoreInstanceMetric, StateStoreProvider, SupportsFineGrainedReplay
}
import org.apache.spark.sql.types.StructType

/**
 * The calls that Spark 4.3 makes on a provider: snapshots and cleanup are two calls, which run at the same time as each
 * other and as tasks. Snapshots have their own schedule here, so only cleanup is left. Spark calls `doMaintenance` on a
 * provider that is unloaded on commit.
 */
trait SparkStateStoreProvider extends StateStoreProvider with SupportsFineGrainedReplay {
  protected def maintain(): Unit

  override def doCleanupMaintenance(): Unit = maintain()

  override def doMaintenance(): Unit = maintain()

  override def supportedInstanceMetrics: Seq[StateStoreInstanceMetric] = Seq(ReportedMetrics.lastSnapshot)
}

/**
 * The calls that Spark 4.3 makes on a store: it registers column families that a reader needs, besides creating them.
 */
trait SparkStateStore extends StateStore {
  override def registerColFamily(
      colFamilyName: String,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useMultipleValuesPerKey: Boolean,
      isInternal: Boolean): Unit =
    createColFamilyIfAbsent(
      colFamilyName, keySchema, valueSchema, keyStateEncoderSpec, useMultipleValuesPerKey, isInternal)
}
