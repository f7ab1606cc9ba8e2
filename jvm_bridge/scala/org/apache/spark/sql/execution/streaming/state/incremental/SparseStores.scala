package org.apache.spark.sql.execution.streaming.state.incremental

import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.types.DataType

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
