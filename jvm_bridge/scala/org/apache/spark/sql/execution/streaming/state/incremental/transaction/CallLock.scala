package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import java.util.concurrent.atomic.AtomicBoolean
import java.util.concurrent.locks.LockSupport

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId

/**
 * Lets one call of a transaction run at a time, and none after its end. Any thread; calls do not nest.
 *
 * @param version that the transaction is on
 */
private[transaction] final class CallLock(version: VersionId) {
  private val busy = new AtomicBoolean
  private val finished = new AtomicBoolean
  @volatile private var ended = false

  /** Begins a call: waits until no other is under way. */
  def enter(): Unit = {
    acquire()
    if (ended) {
      exit()
      throw new IllegalStateException(s"The transaction on version ${version.number} of the state store has ended")
    }
  }

  def exit(): Unit = busy.lazySet(false)

  /** Costs what a volatile write does, unless another thread is in a call. */
  private def acquire(): Unit = if (!busy.compareAndSet(false, true)) acquireLater()

  /** Calls are short, most of them; the wait for a long one goes on when the thread is interrupted. */
  private def acquireLater(): Unit = {
    var interrupted = false
    var spins = 0
    while (busy.get || !busy.compareAndSet(false, true)) {
      spins += 1
      if (spins < CallLock.mostSpins) Thread.onSpinWait()
      else {
        interrupted |= Thread.interrupted()
        LockSupport.parkNanos(CallLock.pauseNs)
      }
    }
    if (interrupted) Thread.currentThread.interrupt()
  }

  /** Does something unless the transaction has ended. */
  def quietly(action: => Unit): Unit = {
    acquire()
    try if (!ended) action
    finally exit()
  }

  /** No call begins any more, and none is under way; whether this was the first to end it. */
  def end(): Boolean = {
    ended = true
    acquire()
    exit()
    finished.compareAndSet(false, true)
  }
}

private object CallLock {
  private val mostSpins = 1000
  private val pauseNs = 50000L
}
