package org.apache.spark.sql.execution.streaming.state.incremental.local

import java.util.concurrent.TimeUnit

import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.internal.Logging

/**
 * How long ago the newest snapshot of a store, and the newest full one, were made: asked of the agent when
 * first needed and after each merge, counted on from there. Safe for any thread.
 */
final class SnapshotAges(store: LocalStore) extends Logging {
  @volatile private var known: Option[(JsonNode, Long)] = None

  /** None where there is no snapshot. */
  def sinceSnapshotMs: Option[Long] = since("last_snapshot_ms")

  def sinceFullMs: Option[Long] = since("last_full_ms")

  def refresh(): Unit =
    try known = Some(store.status() -> System.nanoTime)
    catch { case NonFatal(e) => logDebug(s"The agent gave no status of ${store.name}", e) }

  private def since(field: String): Option[Long] = {
    if (known.isEmpty) refresh()
    for {
      (answer, atNs) <- known
      age <- Option(answer.get(field)) if age.isNumber
    } yield age.asLong + TimeUnit.NANOSECONDS.toMillis(System.nanoTime - atNs)
  }
}
