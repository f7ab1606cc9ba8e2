package org.apache.spark.sql.execution.streaming.state.incremental.placement

import scala.collection.mutable

import org.apache.spark.SparkContext
import org.apache.spark.resource.ResourceProfile
import org.apache.spark.scheduler._
import org.apache.spark.scheduler.cluster.CoarseGrainedSchedulerBackend

/**
 * The executors of an application that take tasks: those that have started, and are not excluded, decommissioned or
 * about to be removed. Safe for any thread.
 */
private[placement] final class Executors(context: SparkContext) extends SparkListener {
  @volatile private var events = 0L
  @volatile private var listed: Seq[Executor] = Nil
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
   * Returns a number that is larger after each change of the executors. No event tells that an executor is being
   * decommissioned, so the listed ones are looked up in the scheduler's own table, in memory.
   */
  def generation: Long = {
    if (listed.exists(executor => !isActive(executor.id))) list()
    events
  }

  /** Returns the executors, in the order of their ids. */
  def list(): Seq[Executor] = synchronized {
    val members = context.env.blockManager.master.getMemoryStatus.keys.toSeq.filterNot(_.isDriver)
    val now = members
      .filterNot(member => excluded(member.executorId) || foreign(member.executorId) || excludedHosts(member.host))
      .filter(member => isActive(member.executorId))
      .map(member => Executor(member.executorId, member.host, cores.getOrElse(member.executorId, usualCores)))
      .sortBy(executor => (executor.id.length, executor.id))
    if (now != listed) {
      listed = now
      events += 1
    }
    now
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
    events += 1
  }
}
