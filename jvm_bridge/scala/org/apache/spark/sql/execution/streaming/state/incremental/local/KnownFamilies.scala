package org.apache.spark.sql.execution.streaming.state.incremental.local

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{ColumnFamilies, VersionId}

/** The column families of the versions that transactions can begin on without a restore. Any thread. */
private[local] final class KnownFamilies {
  private var families = Map(VersionId.empty -> ColumnFamilies.initial)

  /** Number of versions that are known, the empty one not counted. */
  def size: Int = synchronized(families.size - 1)

  def of(version: VersionId): Option[ColumnFamilies] = synchronized(families.get(version))

  def add(version: VersionId, now: ColumnFamilies): Unit = synchronized { families += version -> now }

  /** Forgets the versions below a number, but the empty one: memory begins no transaction on them any more. */
  def forgetBefore(number: Long): Unit = synchronized {
    families = families.filter { case (version, _) => version.number == 0 || version.number >= number }
  }
}
