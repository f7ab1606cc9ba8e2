package org.apache.spark.sql.execution.streaming.state.incremental.local

import java.util.concurrent.{ScheduledThreadPoolExecutor, ThreadPoolExecutor, TimeUnit}

import scala.collection.mutable

import org.apache.spark.util.ThreadUtils

/**
 * Runs the merges of all stores of this JVM on daemon threads, each as soon as fewer run than its own limit
 * allows, in the order in which they became due. Safe for any thread.
 */
object MergeScheduler {
  private final case class Job(limit: Int, body: () => Unit)

  private lazy val threads: ThreadPoolExecutor =
    ThreadUtils.newDaemonCachedThreadPool("state-store-merge")
  private lazy val timer: ScheduledThreadPoolExecutor = {
    val one = new ScheduledThreadPoolExecutor(1, ThreadUtils.namedThreadFactory("state-store-merge-timer"))
    one.setRemoveOnCancelPolicy(true)
    one
  }
  private val waiting = mutable.Queue.empty[Job]
  private var running = 0

  /**
   * @param delayMs least time from now until it starts
   * @param limit most merges that may run at once, this one among them
   * @param body must not throw
   */
  def submit(delayMs: Long, limit: Int)(body: => Unit): Unit = {
    val job = Job(limit, () => body)
    if (delayMs <= 0) enqueue(job)
    else timer.schedule((() => enqueue(job)): Runnable, delayMs, TimeUnit.MILLISECONDS)
  }

  /** Runs something short outside the limit. */
  def now(body: => Unit): Unit = threads.execute(() => body)

  private def enqueue(job: Job): Unit = synchronized {
    waiting.enqueue(job)
    dispatch()
  }

  private def dispatch(): Unit =
    waiting.dequeueFirst(job => running < job.limit).foreach { job =>
      running += 1
      threads.execute { () =>
        try job.body()
        finally synchronized {
          running -= 1
          dispatch()
        }
      }
      dispatch()
    }
}
