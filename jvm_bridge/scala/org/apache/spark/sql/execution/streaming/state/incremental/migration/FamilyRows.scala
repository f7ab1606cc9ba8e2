package org.apache.spark.sql.execution.streaming.state.incremental.migration

import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow, XXH64}
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.incremental.rows.JoinedLists
import org.apache.spark.sql.types.StructType

/** The rows of a column family of an open version. One thread. */
private[migration] final class FamilyRows(
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
