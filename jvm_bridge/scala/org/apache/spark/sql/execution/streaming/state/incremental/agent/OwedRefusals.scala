package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId

/**
 * The attempts of each store of this JVM whose refusal is not in storage yet: the task failed, and the agent or storage
 * failed as well. A store that is opened again finds those of its predecessor. Safe for any thread.
 */
private[agent] object OwedRefusals {
  private val byStore = new ConcurrentHashMap[String, Set[VersionId]]

  /** Returns the attempts of a store whose refusal is not in storage yet. */
  def of(store: String): Set[VersionId] = byStore.getOrDefault(store, Set.empty)

  /** Notes that the refusal of an attempt has to come to storage. */
  def add(store: String, attempt: VersionId): Unit = byStore.merge(store, Set(attempt), _ ++ _)

  /** Notes that the refusal of an attempt is in storage. */
  def remove(store: String, attempt: VersionId): Unit =
    byStore.computeIfPresent(store, (_, attempts) => Some(attempts - attempt).filter(_.nonEmpty).orNull)
}
