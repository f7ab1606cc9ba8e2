package org.apache.spark.sql.execution.streaming.state.incremental.local

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{ColumnFamilies, VersionId}

/** The column families of the versions that memory may have; a version that is forgotten here is restored. Any thread. */
private[local] final class KnownFamilies {
  private var families = Map(VersionId.empty -> ColumnFamilies.initial)

  def of(version: VersionId): Option[ColumnFamilies] = synchronized(families.get(version))

  def add(version: VersionId, now: ColumnFamilies): Unit = synchronized {
    val kept =
      if (families.size < KnownFamilies.most) families
      else {
        val oldest = version.number - KnownFamilies.most / 2
        families.filter { case (one, _) => one.number == 0 || one.number > oldest }
      }
    families = kept + (version -> now)
  }
}

private object KnownFamilies {

  /** Memory holds far fewer versions than this. */
  private val most = 2048
}
