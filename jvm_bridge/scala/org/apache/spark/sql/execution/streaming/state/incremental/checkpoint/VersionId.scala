package org.apache.spark.sql.execution.streaming.state.incremental.checkpoint

/**
 * A committed version of a store: the batch number and, under checkpoint format 2, Spark's state store
 * checkpoint id. Version 0 is the empty store.
 */
final case class VersionId(version: Long, id: Option[String])

object VersionId {
  val empty: VersionId = VersionId(0L, None)
}
