package org.apache.spark.sql.execution.streaming.state.incremental.placement

import scala.collection.mutable

import org.apache.spark.SparkContext
import org.apache.spark.resource.ResourceProfile
import org.apache.spark.scheduler._
import org.apache.spark.scheduler.cluster.CoarseGrainedSchedulerBackend

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
 */
private[placement] final class Executors(context: SparkContext) extends SparkListener {
  @volatile private var isStale = true
  @volatile private var listing = Listing(0, Nil)
  private val cores = mutable.Map.empty[String, Int]
  private val foreign = mutable.Set.empty[String]
  private val excluded = mutable.Set.empty[String]
  private val excludedHosts = mutable.Set.empty[String]

  context.statusStore.executorList(true).foreach { known =>
    if (known.totalCores > 0) cores(known.id) = known.totalCores
    if (known.isExcluded) excluded += known.id
    if (known.resourceProfileId != ResourceProfile.DEFAULT_RESOURCE_PROFILE_ID) foreign += known.id
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
      val living = context.env.blockManager.master.getMemoryStatus.keys.toSeq
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

  private def isActive(id: String): Boolean = context.schedulerBackend match {
    case backend: CoarseGrainedSchedulerBackend => backend.isExecutorActive(id)
    case _ => true
  }

  override def onExecutorAdded(added: SparkListenerExecutorAdded): Unit = changed {
    cores(added.executorId) = added.executorInfo.totalCores
    if (added.executorInfo.resourceProfileId != ResourceProfile.DEFAULT_RESOURCE_PROFILE_ID) {
      foreign += added.executorId
    }
  }

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
