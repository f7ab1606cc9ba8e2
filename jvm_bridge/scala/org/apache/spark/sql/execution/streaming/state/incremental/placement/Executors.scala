package org.apache.spark.sql.execution.streaming.state.incremental.placement

import scala.collection.mutable

import org.apache.spark.SparkContext
import org.apache.spark.resource.ResourceProfile
import org.apache.spark.scheduler._
import org.apache.spark.scheduler.cluster.CoarseGrainedSchedulerBackend
import org.apache.spark.storage.BlockManagerId

/**
 * The executors that take tasks at a time.
 *
 * @param generation larger after each change of the executors
 * @param executors  in the order of their ids
 */
private[placement] final case class Listing(generation: Long, executors: Seq[Executor])

/**
 * The executors of an application that take tasks: those that have started, and are not excluded, decommissioned or
 * about to be removed. Safe for any thread.
 *
 * @param members  returns the block managers of the application, those of the driver and of lost executors too
 * @param isActive returns false for the id of an executor that gets no more tasks
 */
private[placement] final class Executors(members: () => Iterable[BlockManagerId], isActive: String => Boolean)
    extends SparkListener {
  @volatile private var isStale = true
  @volatile private var listing = Listing(0, Nil)
  private val cores = mutable.Map.empty[String, Int]
  private val foreign = mutable.Set.empty[String]
  private val excluded = mutable.Set.empty[String]
  private val excludedHosts = mutable.Set.empty[String]

  /** Notes an executor that started before this listener. */
  def began(id: String, itsCores: Int, profile: Int, isExcluded: Boolean): Unit = changed {
    if (itsCores > 0) cores(id) = itsCores
    if (isExcluded) excluded += id
    if (profile != ResourceProfile.DEFAULT_RESOURCE_PROFILE_ID) foreign += id
  }

  /**
   * Returns the executors. No event tells that an executor is being decommissioned, so the listed ones are looked up in
   * the scheduler's own table, in memory. The driver asks for all of them again only after a change.
   */
  def now: Listing = {
    if (isStale || listing.executors.exists(executor => !isActive(executor.id))) list()
    listing
  }

  private def list(): Unit = synchronized {
    isStale = false
    try {
      val living = members().toSeq
        .filterNot(member => member.isDriver || excluded(member.executorId) || excludedHosts(member.host))
        .filter(member => isActive(member.executorId) && !foreign(member.executorId))
        .map(member => Executor(member.executorId, member.host, cores.getOrElse(member.executorId, usualCores)))
        .sortBy(executor => (executor.id.length, executor.id))
      if (living != listing.executors) listing = Listing(listing.generation + 1, living)
    } catch {
      case e: Throwable =>
        isStale = true
        throw e
    }
  }

  private def usualCores: Int = if (cores.isEmpty) 1 else cores.values.max

  override def onExecutorAdded(added: SparkListenerExecutorAdded): Unit =
    began(added.executorId, added.executorInfo.totalCores, added.executorInfo.resourceProfileId, isExcluded = false)

  // An executor takes tasks from now on: it has no block manager yet when it is added.
  override def onBlockManagerAdded(added: SparkListenerBlockManagerAdded): Unit = changed(())

  override def onExecutorRemoved(removed: SparkListenerExecutorRemoved): Unit = changed {
    cores -= removed.executorId
    foreign -= removed.executorId
    excluded -= removed.executorId
  }

  override def onExecutorExcluded(event: SparkListenerExecutorExcluded): Unit = changed(excluded += event.executorId)

  override def onExecutorUnexcluded(event: SparkListenerExecutorUnexcluded): Unit =
    changed(excluded -= event.executorId)

  override def onNodeExcluded(event: SparkListenerNodeExcluded): Unit = changed(excludedHosts += event.hostId)

  override def onNodeUnexcluded(event: SparkListenerNodeUnexcluded): Unit = changed(excludedHosts -= event.hostId)

  private def changed(change: => Unit): Unit = synchronized {
    change
    isStale = true
  }
}

private[placement] object Executors {
  /** Returns the executors of an application, whose events they hear from now on. */
  def of(context: SparkContext): Executors = {
    val executors = new Executors(
      () => context.env.blockManager.master.getMemoryStatus.keys,
      id =>
        context.schedulerBackend match {
          case backend: CoarseGrainedSchedulerBackend => backend.isExecutorActive(id)
          case _ => true
        })
    context.addSparkListener(executors)
    context.statusStore.executorList(true).foreach { known =>
      executors.began(known.id, known.totalCores, known.resourceProfileId, known.isExcluded)
    }
    executors
  }
}
