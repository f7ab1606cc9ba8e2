package org.apache.spark.sql.execution.streaming.state.incremental.checkpoint

/**
 * A committed version of a store: its number, and the id of the attempt, which is Spark's state store checkpoint id or,
 * under checkpoint format 1, the store's own. The id is None if the number alone names the version. Version 0 is the
 * empty store.
 */
final case class VersionId(number: Long, id: Option[String])

object VersionId {
  val empty: VersionId = VersionId(0L, None)
}
