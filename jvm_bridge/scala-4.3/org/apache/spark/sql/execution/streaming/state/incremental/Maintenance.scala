package org.apache.spark.sql.execution.streaming.state.incremental

import org.apache.spark.sql.execution.streaming.state.StateStoreProvider

/**
 * How Spark 4.3 asks for background work: snapshots and cleanup apart, at the same time as each other and as
 * tasks. Snapshots have their own schedule here, so only cleanup is left; `doMaintenance` is what a provider
 * gets that is unloaded on commit.
 */
trait Maintenance extends StateStoreProvider {
  protected def maintain(): Unit

  override def doCleanupMaintenance(): Unit = maintain()

  override def doMaintenance(): Unit = maintain()
}
