package org.apache.spark.sql.execution.streaming.state.incremental

import org.apache.spark.sql.execution.streaming.state.StateStoreProvider

/** How Spark 4.2 asks for background work: one call for all of it. */
trait Maintenance extends StateStoreProvider {
  protected def maintain(): Unit

  override def doMaintenance(): Unit = maintain()
}
