package org.apache.spark.sql.execution.streaming.state.incremental.migration

import scala.util.control.NonFatal

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.incremental.IncrementalStateStore
import org.apache.spark.sql.execution.streaming.state.incremental.IncrementalStateStoreProvider

/**
 * Copies one version of one store, row by row. It needs no more memory than the two providers.
 *
 * @param id the id of the version in the source; None if it has none (checkpoint format 1)
 */
private[migration] final class StoreCopy(
    source: Side,
    target: Side,
    schemas: StoreSchemas,
    partition: Int,
    version: Long,
    id: Option[String],
    events: Events) {
  private var keys = 0L
  private var rows = 0L
  private var unreported = 0L

  /** @throws CopyException if the store cannot be copied; its cause is what a provider or the storage raised */
  def run(): Unit =
    try copy()
    catch {
      case NonFatal(e) =>
        val name = s"${schemas.operator}/$partition/${schemas.store}"
        val place = s"${source.stateRoot}/${schemas.operator}/$partition"
        throw new CopyException(s"version $version of store $name cannot be copied from '$place'", e)
    }

  private def copy(): Unit = {
    val from = source.provider(schemas, partition)
    try {
      val reader = Side.reader(from, version, id, schemas)
      try {
        keysOf(reader).foreach(events.expected)
        write(reader)
      } finally reader.abort()
    } finally from.close()
  }

  private def write(reader: ReadStateStore): Unit = {
    val to = target.provider(schemas, partition)
    try {
      val writer = Side.writer(to, version, schemas)
      try {
        schemas.families.foreach { family =>
          if (family.isList) copyLists(reader, writer, family) else copyRows(reader, writer, family)
        }
        writer.commit()
        checkKeys(writer)
      } finally if (!writer.hasCommitted) writer.abort()
      if (!to.isInstanceOf[IncrementalStateStoreProvider]) {
        Renumbering.renumber(to.stateStoreId.storeCheckpointLocation(), version, target.hadoop)
      }
      events.copied(unreported)
      events.done(schemas.operator, partition, schemas.store, rows,
        writer.getStateStoreCheckpointInfo().stateStoreCkptId)
    } finally to.close()
  }

  private def copyRows(reader: ReadStateStore, writer: StateStore, family: Family): Unit = {
    val pairs = reader.iterator(family.name)
    try pairs.foreach { pair =>
        writer.put(pair.key, pair.value, family.name)
        counted(1, family)
      }
    finally pairs.close()
  }

  private def copyLists(reader: ReadStateStore, writer: StateStore, family: Family): Unit = {
    val pairs = reader.iterator(family.name)
    try pairs.foreach { pair =>
        val key = pair.key.copy() // the iterator reuses the row while the values are looked up
        var count = 0L
        reader.valuesIterator(key, family.name).foreach { value =>
          if (count == 0) writer.put(key, value, family.name) else writer.merge(key, value, family.name)
          count += 1
        }
        counted(count, family)
      }
    finally pairs.close()
  }

  private def counted(values: Long, family: Family): Unit = {
    if (!family.isInternal) keys += 1
    rows += values
    unreported += values
    if (unreported >= StoreCopy.ReportedAtOnce) {
      events.copied(unreported)
      unreported = 0
      if (Thread.interrupted()) throw new InterruptedException("another store could not be copied")
    }
  }

  /** Returns the number of keys, if the store knows it before it commits. */
  private def keysOf(reader: ReadStateStore): Option[Long] = reader match {
    case store: IncrementalStateStore => Some(store.metrics.numKeys)
    case _ => None
  }

  private def checkKeys(writer: StateStore): Unit = {
    val found = writer.metrics.numKeys
    if (found != keys) {
      throw new MigrationException("internal", s"$keys keys were written to ${writer.id}, and it has $found")
    }
  }
}

private object StoreCopy {
  val ReportedAtOnce = 1000L
}
