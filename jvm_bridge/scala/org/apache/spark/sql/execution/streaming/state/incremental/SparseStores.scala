package org.apache.spark.sql.execution.streaming.state.incremental

import java.util.concurrent.ConcurrentHashMap

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, JoinedRow, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.types.{DataType, LongType}

/**
 * Table of the open stores whose files are not there as a whole, by task and operator. An operator finds the stores
 * here to which it announces keys: one store, or those of both sides of a join. The numbers of rows of a join, which
 * tell the keys of its rows, are here even if all of them are there: their store is much smaller. Any thread.
 */
private[incremental] object SparseStores {
  private final case class Place(taskAttempt: Long, operator: Long)

  /** For each place its stores by their names. */
  private val stores = new ConcurrentHashMap[Place, ConcurrentHashMap[String, IncrementalStateStore]]

  /** Keeps a store until its task ends, if keys may be announced to it; it replaces an earlier store of its name. */
  def add(store: IncrementalStateStore, task: TaskContext): Unit =
    if (store.isSparse || JoinedValues.isCounts(store.id.storeName)) {
      val place = Place(task.taskAttemptId(), store.id.operatorId)
      val byName = stores.computeIfAbsent(place,
        { _ =>
          task.addTaskCompletionListener[Unit](_ => stores.remove(place))
          new ConcurrentHashMap[String, IncrementalStateStore]
        })
      byName.put(store.id.storeName, store)
    }

  /**
   * Returns the function that announces keys to the stores of an operator in this task; None if all rows are at hand.
   *
   * @param types types of the columns of the keys
   */
  def expecting(operator: Long, types: Seq[DataType]): Option[Array[UnsafeRow] => Unit] =
    Option(TaskContext.get()).map(task => Place(task.taskAttemptId(), operator))
      .filter(at(_).exists(_.isSparse)).map { place =>
        val values = new JoinedValues(types)
        keys => {
          val open = at(place).filter(_.isUpdating)
          open.filter(_.isSparse).foreach(_.expect(keys, types))
          values.announce(open, keys)
        }
      }

  private def at(place: Place): Seq[IncrementalStateStore] =
    Option(stores.get(place)).fold(Seq.empty[IncrementalStateStore])(_.values.asScala.toSeq)
}

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
