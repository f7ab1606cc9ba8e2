package org.apache.spark.sql.execution.streaming.state.incremental.observed

import org.apache.spark.SparkContext
import org.apache.spark.resource.ResourceProfile

/** An executor that takes tasks, as Spark's status store on the driver knows it. */
private[observed] final case class TakesTasks(id: String, host: String, cores: Int, startedMs: Long)

private[observed] object TakesTasks {
  /** Returns the executors of an application that take the tasks of queries; none in local mode. */
  def of(context: SparkContext): Seq[TakesTasks] =
    context.statusStore.executorList(true).filter { known =>
      known.id != SparkContext.DRIVER_IDENTIFIER && known.isActive && !known.isExcluded &&
      known.resourceProfileId == ResourceProfile.DEFAULT_RESOURCE_PROFILE_ID
    }.map { known =>
      TakesTasks(known.id, known.hostPort.replaceAll(":[0-9]+$", ""), known.totalCores, known.addTime.getTime)
    }
}

/** An executor with the number of a query's stores on it. */
private[observed] final case class ExecutorStores(executor: String, host: String, stores: Int)

/** The executors that the stores of a query are on. Pure functions. */
private[observed] object StoresByExecutor {
  /** The time in which an executor gets stores, if it ever does: it starts, and batches begin. */
  val SettledMs: Long = 5 * 60 * 1000

  /** Returns the executors that have stores or take tasks, in the order of their ids. */
  def of(stores: Seq[StoreView], living: Seq[TakesTasks]): Seq[ExecutorStores] = {
    val counts = stores.groupMapReduce(store => store.executor -> store.host)(_ => 1)(_ + _)
    val idle = living.filterNot(executor => counts.keysIterator.exists(_._1 == executor.id))
    (counts.map { case ((id, host), count) => ExecutorStores(id, host, count) }.toSeq ++
      idle.map(executor => ExecutorStores(executor.id, executor.host, 0)))
      .sortBy(found => (found.executor.length, found.executor))
  }

  /**
   * Returns the number of executors that have no store though they started a while ago, if another one has to run tasks
   * of an operator one after the other: it has more of its partitions than cores.
   */
  def idle(stores: Seq[StoreView], living: Seq[TakesTasks], nowMs: Long): Int = {
    val partitions = stores.map(store => (store.executor, store.key.operator, store.key.partition)).distinct
      .groupMapReduce { case (executor, operator, _) => executor -> operator }(_ => 1)(_ + _)
    val isBusy = living.exists { executor =>
      partitions.exists { case ((id, _), count) => id == executor.id && count > executor.cores }
    }
    val holders = partitions.keysIterator.map(_._1).toSet
    if (isBusy) living.count(executor => !holders(executor.id) && nowMs - executor.startedMs > SettledMs) else 0
  }
}
