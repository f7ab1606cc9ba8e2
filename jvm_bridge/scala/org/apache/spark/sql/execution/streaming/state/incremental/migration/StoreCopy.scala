package org.apache.spark.sql.execution.streaming.state.incremental.migration

import scala.util.control.NonFatal

import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow, XXH64}
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.incremental.IncrementalStateStore
import org.apache.spark.sql.execution.streaming.state.incremental.IncrementalStateStoreProvider
import org.apache.spark.sql.execution.streaming.state.incremental.rows.JoinedLists
import org.apache.spark.sql.types.StructType

/**
 * Copies one version of one store, row by row, and compares the copy with it. It needs no more memory than the
 * providers. `run` tells the story; [[FamilyRows]] visits the rows, and [[FamilyContents]] sums them up.
 *
 * @param source the checkpoint that is copied
 * @param target the checkpoint that is written, as it is written
 * @param queried the target as the query will read it
 * @param version the version, which has the same number in the target
 * @param id the id of the version in the source; None if it has none (checkpoint format 1)
 */
private[migration] final class StoreCopy(
    source: Side,
    target: Side,
    queried: Side,
    schemas: StoreSchemas,
    partition: Int,
    version: Long,
    id: Option[String],
    events: Events) {
  private val name = s"${schemas.operator}/$partition/${schemas.store}"
  private var keys = 0L
  private var rows = 0L
  private var unreported = 0L

  /**
   * Writes all rows, and then reads them again.
   *
   * @throws CopyException if the store cannot be copied; its cause is what a provider or the storage raised
   */
  def run(): Unit =
    try {
      val contents = schemas.families.map(new FamilyContents(_))
      val newId = withReader(source, id)((from, reader) => write(from, reader, contents))
      withReader(queried, newId)((to, reader) => contents.foreach(compare(to, reader, _)))
      events.done(schemas.operator, partition, schemas.store, rows, newId)
    } catch {
      case NonFatal(e) =>
        val place = s"${source.stateRoot}/${schemas.operator}/$partition"
        throw new CopyException(s"version $version of store $name cannot be copied from '$place'", e)
    }

  private def withReader[T](side: Side, id: Option[String])(work: (StateStoreProvider, ReadStateStore) => T): T = {
    val provider = side.provider(schemas, partition)
    try {
      val reader = Side.reader(provider, version, id, schemas)
      try work(provider, reader)
      finally reader.abort()
    } finally provider.close()
  }

  /** Writes the rows, and adds them to the contents of their families; returns the id of the new version. */
  private def write(
      from: StateStoreProvider, reader: ReadStateStore, contents: Seq[FamilyContents]): Option[String] = {
    keysOf(reader).foreach(events.expected)
    val to = target.provider(schemas, partition)
    try {
      val writer = Side.writer(to, version, schemas)
      try {
        contents.foreach { familyContents =>
          val family = familyContents.family
          new FamilyRows(source, from, reader, family).foreach { (key, value, position) =>
            familyContents.add(key, value, position)
            if (position == 0) writer.put(key, value, family.name) else writer.merge(key, value, family.name)
            count(position, family)
          }
        }
        writer.commit()
        checkKeys(writer)
      } finally if (!writer.hasCommitted) writer.abort()
      if (!to.isInstanceOf[IncrementalStateStoreProvider]) {
        Renumbering.renumber(to.stateStoreId.storeCheckpointLocation(), version, target.hadoop)
      }
      events.copied(unreported)
      writer.getStateStoreCheckpointInfo().stateStoreCkptId
    } finally to.close()
  }

  private def compare(provider: StateStoreProvider, reader: ReadStateStore, original: FamilyContents): Unit = {
    val family = original.family
    val copy = new FamilyContents(family)
    new FamilyRows(queried, provider, reader, family).foreach { (key, value, position) =>
      copy.add(key, value, position)
      if (copy.rows % StoreCopy.RowsAtOnce == 0) endIfStopped()
    }
    if (!copy.isSame(original)) {
      throw new MigrationException("internal",
        s"column family '${family.name}' of store $name had $original in the source, and has $copy in the target")
    }
  }

  private def count(position: Long, family: Family): Unit = {
    if (position == 0 && !family.isInternal) keys += 1
    rows += 1
    unreported += 1
    if (unreported >= StoreCopy.RowsAtOnce) {
      events.copied(unreported)
      unreported = 0
      endIfStopped()
    }
  }

  private def endIfStopped(): Unit =
    if (Thread.interrupted()) throw new InterruptedException("another store could not be copied")

  /** Returns the number of keys, if the store knows it before it commits. */
  private def keysOf(reader: ReadStateStore): Option[Long] = reader match {
    case store: IncrementalStateStore => Some(store.metrics.numKeys)
    case _ => None
  }

  private def checkKeys(writer: StateStore): Unit = {
    val keysInStore = writer.metrics.numKeys
    if (keysInStore != keys) {
      throw new MigrationException("internal", s"$keys keys were written to ${writer.id}, and it has $keysInStore")
    }
  }
}

private object StoreCopy {
  /** Rows after which the copy reports them and looks whether it is to end. */
  val RowsAtOnce = 1000L
}

/** The rows of a column family of an open version. One thread. */
private final class FamilyRows(
    side: Side, provider: StateStoreProvider, reader: ReadStateStore, family: Family) {

  /**
   * Calls a function with each key, value, and position of the value among those of its key, from 0 on. Rows are valid
   * until the function returns.
   *
   * @throws MigrationException if a row refers to bytes outside of it
   */
  def foreach(work: (UnsafeRow, UnsafeRow, Long) => Unit): Unit = {
    if (family.isList) checkLists()
    val pairs = reader.iterator(family.name)
    try pairs.foreach { pair =>
        checkBounds(pair.key, family.keys)
        if (family.isList) {
          val key = pair.key.copy() // the iterator reuses the row while the values are looked up
          reader.valuesIterator(key, family.name).zipWithIndex.foreach { case (value, position) =>
            visit(work, key, value, position)
          }
        } else visit(work, pair.key, pair.value, 0)
      }
    finally pairs.close()
  }

  private def visit(
      work: (UnsafeRow, UnsafeRow, Long) => Unit, key: UnsafeRow, value: UnsafeRow, position: Long): Unit = {
    checkBounds(value, family.values)
    work(key, value, position)
  }

  /** Checks all lists before Spark's decoder sees them, which reads past the end of a list with a wrong length. */
  private def checkLists(): Unit = provider match {
    case rocks: RocksDBStateStoreProvider if !side.hasRowChecksums =>
      val lists = rocks.rocksDB.iterator(family.name)
      try lists.foreach(list => JoinedLists.check(list.value, side.delimiterBytes))
      finally lists.closeIfNeeded()
    case _ => // this project's store checks each list, as Spark checks each value that has a checksum
  }

  private def checkBounds(row: UnsafeRow, schema: StructType): Unit = {
    val size = row.getSizeInBytes
    val fixed = UnsafeRow.calculateBitSetWidthInBytes(schema.length) + 8 * schema.length
    def outside(field: Int): Boolean = !row.isNullAt(field) && !UnsafeRow.isFixedLength(schema(field).dataType) && {
      val slot = row.getLong(field)
      val (start, length) = (slot >>> 32, slot & 0xffffffffL)
      start < fixed || start + length > size
    }
    if (size < fixed || size % 8 != 0 || schema.indices.exists(outside)) {
      throw new MigrationException("damaged",
        s"a row of column family '${family.name}' with $size bytes is not a row of ${schema.catalogString}")
    }
  }
}

/**
 * The rows of a column family in brief: their number, and a checksum over all keys, values, and positions of values,
 * in whatever order the keys come. One thread.
 */
private[migration] final class FamilyContents(val family: Family) {
  private lazy val keys = UnsafeProjection.create(family.keys)
  private lazy val values = UnsafeProjection.create(family.values)
  private var count = 0L
  private var checksum = 0L

  def rows: Long = count

  /** Adds a row. The values of its fields count, not the places that they have in the row. */
  def add(key: UnsafeRow, value: UnsafeRow, position: Long): Unit = {
    count += 1
    checksum += hash(values(value), hash(keys(key), position))
  }

  def isSame(other: FamilyContents): Boolean = count == other.count && checksum == other.checksum

  override def toString: String = f"$count rows with checksum $checksum%016x"

  private def hash(row: UnsafeRow, seed: Long): Long =
    XXH64.hashUnsafeBytes(row.getBaseObject, row.getBaseOffset, row.getSizeInBytes, seed)
}
