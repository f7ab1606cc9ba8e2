package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId

/** Spark's table, on the driver, of the executors on which stores are. Tasks run where it says, if they can. */
final class Coordinator(session: SparkSession) {
  private val coordinator = session.streams.stateStoreCoordinator

  /** Returns the id of the executor of a store; None if no executor has reported it. */
  def executorOf(store: StateStoreProviderId): Option[String] =
    coordinator.getLocation(store).map(place => place.substring(place.lastIndexOf('_') + 1)) // executor_HOST_ID

  /** Notes an executor for a store. The other one closes its store when it hears of that. */
  def place(store: StateStoreProviderId, host: String, executor: String): Unit =
    coordinator.reportActiveInstance(store, host, executor, Nil) // the answer differs between releases
}
