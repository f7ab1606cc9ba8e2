package org.apache.spark.sql.execution.streaming.state.incremental

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, JoinedRow, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.types.{DataType, LongType}

/**
 * The rows that a join of streams holds for a key. Spark keeps the number of them under the key, and each under the key
 * and its number from 0 on: in stores of their own, or in column families of one store. One thread.
 *
 * @param types types of the columns of the join's keys
 */
private[incremental] final class JoinedValues(types: Seq[DataType]) {
  import JoinedValues._

  private val numbered = types :+ LongType
  private lazy val numberedKey = UnsafeProjection.create(numbered.toArray)

  /** Announces the rows of keys, whose numbers have been announced, to the stores of a join; does nothing for others. */
  def announce(stores: Seq[IncrementalStateStore], keys: Array[UnsafeRow]): Unit =
    for {
      counts <- stores.filter(_.isUpdating)
      family <- counts.familiesOf(types)
      if Seq(counts.id.storeName, family).exists(_.endsWith(Counts))
      values <- stores.find(_.id.storeName == counts.id.storeName.replace(Counts, Values))
      if values.isSparse
      if values.familiesOf(numbered).contains(family.replace(Counts, Values))
    } {
      val rows = mutable.ArrayBuffer.empty[UnsafeRow]
      keys.iterator.takeWhile(_ => rows.length < MaxRows).foreach(key => addRowsOf(key, counts, family, rows))
      values.expect(rows.toArray, numbered)
    }

  private def addRowsOf(
      key: UnsafeRow,
      counts: IncrementalStateStore,
      family: String,
      rows: mutable.ArrayBuffer[UnsafeRow]): Unit = {
    val count = Option(counts.get(key, family)).fold(0L)(_.getLong(0))
    (0L until math.min(count, MaxRows - rows.length)).foreach { number =>
      rows += numberedKey(new JoinedRow(key, new GenericInternalRow(Array[Any](number)))).copy()
    }
  }
}

private[incremental] object JoinedValues {
  private val Counts = "keyToNumValues"
  private val Values = "keyWithIndexToValue"

  /** Returns true if the store of that name has nothing but the numbers of rows of one side of a join. */
  def isCounts(storeName: String): Boolean = storeName.endsWith(Counts)

  /** Rows that are announced at a time at most; others are looked up one after the other. */
  private val MaxRows = 32768
}
