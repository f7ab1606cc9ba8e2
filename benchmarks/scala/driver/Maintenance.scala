package statestore.benchmark

import java.util.concurrent.{Callable, Executors, ExecutorService, Future, ThreadFactory}

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.spark.sql.execution.streaming.state.StateStoreProvider

/**
 * Background maintenance as Spark does it: on other threads than the task's, and at most one round a store at a time.
 * Spark 4.2 calls `doMaintenance`; later versions call snapshot and cleanup maintenance, each in its own thread pool.
 * An exception is kept for the report and does not stop the run.
 */
final class Maintenance(threads: Int) {
  private val operations: Seq[String] = {
    val names = classOf[StateStoreProvider].getMethods.map(_.getName).toSet
    val split = Seq("doSnapshotMaintenance", "doCleanupMaintenance")
    if (split.forall(names.contains)) split else Seq("doMaintenance")
  }
  private val pools: Map[String, ExecutorService] =
    operations.map(name => name -> Executors.newFixedThreadPool(threads, Maintenance.daemons(name))).toMap
  private val running = mutable.HashMap.empty[(StateStoreProvider, String), Future[Unit]]
  private val failures = mutable.ArrayBuffer.empty[Throwable]

  /** Starts a round for each provider without one that runs. */
  def start(providers: Seq[StateStoreProvider]): Unit =
    for (provider <- providers; operation <- operations
      if !running.get((provider, operation)).exists(!_.isDone)) {
      val task: Callable[Unit] = () => run(provider, operation)
      running((provider, operation)) = pools(operation).submit(task)
    }

  def isRunning: Boolean = running.values.exists(!_.isDone) || MergeThreads.areBusy

  /** Waits until all rounds and merges have ended. */
  def drain(): Unit = {
    running.values.foreach(_.get())
    running.clear()
    MergeThreads.awaitIdle()
  }

  def takeFailures(): Seq[Throwable] = failures.synchronized {
    val taken = failures.toList
    failures.clear()
    taken
  }

  def close(): Unit = {
    drain()
    pools.values.foreach(_.shutdown())
  }

  private def run(provider: StateStoreProvider, operation: String): Unit =
    try {
      provider.getClass.getMethod(operation).invoke(provider)
    } catch {
      case e: java.lang.reflect.InvocationTargetException => failures.synchronized(failures += e.getCause)
    }
}

object Maintenance {
  private def daemons(name: String): ThreadFactory = task => {
    val thread = new Thread(task, s"benchmark-$name")
    thread.setDaemon(true)
    thread
  }
}

/**
 * The threads on which the incremental store merges, outside maintenance calls. A segment pays for the merges that
 * begin in it.
 */
object MergeThreads {
  private val prefix = "state-store-merge-"
  private val timer = "state-store-merge-timer"
  private val pollMs = 2L

  /** Returns true while a merge runs: a pool's thread works unless it waits for a task. */
  def areBusy: Boolean = Thread.getAllStackTraces.asScala.exists { case (thread, stack) =>
    thread.getName.startsWith(prefix) && !thread.getName.startsWith(timer) &&
    !stack.exists(_.getMethodName == "getTask")
  }

  def awaitIdle(): Unit = while (areBusy) Thread.sleep(pollMs)
}
