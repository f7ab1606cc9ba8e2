package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.Closeable
import java.util.concurrent.{ScheduledThreadPoolExecutor, TimeUnit}
import java.util.concurrent.atomic.AtomicBoolean

import org.apache.spark.util.ThreadUtils

/** Closes what is overdue, so that a blocked thread gets an exception instead of waiting for ever. */
private[agent] object Watchdog {
  private lazy val timer: ScheduledThreadPoolExecutor = {
    val one = new ScheduledThreadPoolExecutor(1, ThreadUtils.namedThreadFactory("state-store-watchdog"))
    one.setRemoveOnCancelPolicy(true)
    one
  }

  /**
   * Runs the body; if it takes longer than `timeoutMs`, closes the resource.
   *
   * @throws CallTimeout    if it took longer
   * @throws AgentException if the thread of the watchdog cannot be started
   */
  def bounded[T](resource: Closeable, timeoutMs: Long)(body: => T): T = {
    val fired = new AtomicBoolean
    val overdue: Runnable = () => {
      fired.set(true)
      resource.close()
    }
    val alarm =
      try timer.schedule(overdue, timeoutMs, TimeUnit.MILLISECONDS)
      catch { case e: OutOfMemoryError => throw Supervised.noThread("state-store-watchdog", e) }
    try body
    catch {
      case e: java.io.IOException if fired.get => throw new CallTimeout(timeoutMs, e)
    } finally alarm.cancel(false)
  }
}

/** A call to the agent took longer than it may. */
private[agent] final class CallTimeout(val timeoutMs: Long, cause: Throwable)
  extends java.io.IOException(s"no answer from the agent within $timeoutMs ms", cause)
