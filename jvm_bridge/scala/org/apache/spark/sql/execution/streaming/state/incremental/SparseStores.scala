package org.apache.spark.sql.execution.streaming.state.incremental

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.types.DataType

/**
 * Table of the open stores whose files are not there as a whole, by task and operator. An operator finds the store here
 * to which it announces keys. Any thread.
 */
private[incremental] object SparseStores {
  private final case class Place(taskAttempt: Long, operator: Long)

  private val stores = new ConcurrentHashMap[Place, IncrementalStateStore]

  /** Keep a store until its task ends, if rows of it may have to be fetched; it replaces an earlier store of the task. */
  def add(store: IncrementalStateStore, task: TaskContext): Unit =
    if (store.isSparse && store.id.storeName == StateStoreId.DEFAULT_STORE_NAME) {
      val place = Place(task.taskAttemptId(), store.id.operatorId)
      if (stores.put(place, store) == null) task.addTaskCompletionListener[Unit](_ => stores.remove(place))
    }

  /**
   * Return the function that announces keys to the store of an operator in this task; None if all rows are at hand.
   *
   * @param types types of the columns of the keys
   */
  def expecting(operator: Long, types: Seq[DataType]): Option[Array[UnsafeRow] => Unit] =
    Option(TaskContext.get()).map(task => Place(task.taskAttemptId(), operator)).filter(stores.containsKey).map {
      place => keys => Option(stores.get(place)).foreach(_.expect(keys, types))
    }
}
