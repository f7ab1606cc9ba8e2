package org.apache.spark.sql.execution.streaming.state.incremental.observed

import java.util.{ArrayList => JavaArrayList}
import java.util.concurrent.{ArrayBlockingQueue, TimeUnit}
import java.util.concurrent.atomic.AtomicBoolean

import scala.jdk.CollectionConverters._

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.agent.Supervised

/**
 * Reports that wait to be delivered, and the daemon thread that delivers them. No error of a delivery ends the thread,
 * and a thread that cannot be started is tried again with a later report.
 *
 * @param isWanted returns false when the thread is to end
 * @param deliver  delivers some reports; those of a call that fails are lost
 * @param start    starts a thread; returns null if the machine has none left
 * @param retryMs  the least time between two tries to start the thread
 * @param pauseMs  the pause of the thread after an error
 */
private[observed] final class Outbox(
    isWanted: () => Boolean,
    deliver: Seq[Report] => Unit,
    start: (() => Unit) => Thread = Outbox.start,
    retryMs: Long = 60000,
    pauseMs: Long = 1000)
    extends Logging {
  private val queue = new ArrayBlockingQueue[Report](Outbox.MaxWaiting)
  private val saidFull = new AtomicBoolean
  private var notBeforeNs = System.nanoTime
  @volatile private var thread: Thread = null

  /** Delivers a report soon; one that finds no room is dropped. Returns at once. Safe for any thread. */
  def send(report: Report): Unit = {
    if (!queue.offer(report) && saidFull.compareAndSet(false, true)) {
      logInfo(s"More than ${Outbox.MaxWaiting} reports of state stores wait to be sent to the driver: " +
        "the others are dropped, and the tab \"Checkpoints\" of Spark's UI shows older figures")
    }
    ensureRunning()
  }

  private def ensureRunning(): Unit =
    if (!isRunning) synchronized {
      if (!isRunning && System.nanoTime - notBeforeNs >= 0) {
        notBeforeNs = System.nanoTime + TimeUnit.MILLISECONDS.toNanos(retryMs)
        thread = start(() => run())
      }
    }

  private def isRunning: Boolean = thread != null && thread.isAlive

  private def run(): Unit =
    try Supervised.repeat("Reports of state stores were not sent", isWanted(), pauseMs)(step())
    catch { case _: InterruptedException => () } // a later report starts another thread

  private def step(): Unit =
    Option(queue.poll(Outbox.PollMs, TimeUnit.MILLISECONDS)).foreach { first =>
      Thread.sleep(Outbox.LingerMs) // the stores of an executor commit at nearly the same time
      val others = new JavaArrayList[Report]
      queue.drainTo(others, Outbox.MaxInMessage)
      deliver(first +: others.asScala.toSeq)
    }
}

private[observed] object Outbox {
  private val MaxWaiting = 10000
  private val MaxInMessage = 200
  private val LingerMs = 20L
  private val PollMs = 5000L

  private def start(run: () => Unit): Thread = Supervised.start("state-store-reports")(run())
}
