package org.apache.spark.sql.execution.streaming.state.incremental.probe

import org.apache.spark.SparkContext
import org.apache.spark.deploy.LocalSparkCluster
import org.apache.spark.deploy.security.HadoopDelegationTokenManager
import org.apache.spark.scheduler.{ExternalClusterManager, SchedulerBackend, TaskScheduler, TaskSchedulerImpl}
import org.apache.spark.scheduler.cluster.StandaloneSchedulerBackend

/**
 * A cluster of one executor in a process of its own, with the master `local-tokens`. Spark obtains, renews and hands
 * over delegation tokens on YARN and Kubernetes only; this is its standalone cluster with the same token manager.
 */
final class ClusterWithTokens extends ExternalClusterManager {
  override def canCreate(master: String): Boolean = master == "local-tokens"

  override def createTaskScheduler(context: SparkContext, master: String): TaskScheduler =
    new TaskSchedulerImpl(context)

  override def createSchedulerBackend(
      context: SparkContext, master: String, scheduler: TaskScheduler): SchedulerBackend = {
    val cluster = LocalSparkCluster(1, 1, 1024, context.conf)
    val backend = new StandaloneSchedulerBackend(
      scheduler.asInstanceOf[TaskSchedulerImpl], context, cluster.start()) {
      override def createTokenManager(): Option[HadoopDelegationTokenManager] =
        Some(new HadoopDelegationTokenManager(context.conf, context.hadoopConfiguration, driverEndpoint))
    }
    backend.shutdownCallback = _ => cluster.stop()
    backend
  }

  override def initialize(scheduler: TaskScheduler, backend: SchedulerBackend): Unit =
    scheduler.asInstanceOf[TaskSchedulerImpl].initialize(backend)
}
