package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import java.util.concurrent.atomic.AtomicBoolean
import java.util.concurrent.locks.LockSupport

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId

/**
 * A lock that lets one call of a transaction run at a time, and none after the end or after a failed call. For any
 * thread; calls do not nest.
 *
 * @param version the version that the transaction is on
 */
private[transaction] final class CallLock(version: VersionId) {
  private val busy = new AtomicBoolean
  private val finished = new AtomicBoolean

  /** True if calls may begin: false after the end and after a failure. */
  @volatile private var isOpen = true
  @volatile private var hasEnded = false

  /** The exception of the first failed call. Written and read within a call. */
  private var failure: Throwable = _

  /**
   * Begins a call: waits until no other runs. This costs a volatile write, unless another thread is in a call.
   *
   * @throws IllegalStateException after the end, and after a failed call
   */
  def enter(): Unit = {
    acquire()
    if (!isOpen) refuse()
  }

  private def refuse(): Nothing = {
    val cause = failure
    exit()
    val transaction = s"The transaction on version ${version.number} of the state store"
    if (hasEnded) throw new IllegalStateException(s"$transaction has ended")
    throw new IllegalStateException(
      s"A call of the transaction on version ${version.number} of the state store failed; " +
        s"it can only be aborted. The failure was: $cause",
      cause)
  }

  def exit(): Unit = busy.lazySet(false)

  /**
   * Notes, within a call, that the call failed, and throws its error. No call may begin afterwards, because it would
   * read or commit half of the failed call's work.
   */
  def fail(cause: Throwable): Nothing = {
    if (failure == null) failure = cause
    isOpen = false
    throw cause
  }

  private def acquire(): Unit = if (!busy.compareAndSet(false, true)) acquireLater()

  /**
   * Waits for the end of another call: spins first, because most calls are short. The wait continues if the thread is
   * interrupted.
   */
  private def acquireLater(): Unit = {
    var interrupted = false
    var spins = 0
    while (busy.get || !busy.compareAndSet(false, true)) {
      spins += 1
      if (spins < CallLock.maxSpins) Thread.onSpinWait()
      else {
        interrupted |= Thread.interrupted()
        LockSupport.parkNanos(CallLock.pauseNs)
      }
    }
    if (interrupted) Thread.currentThread.interrupt()
  }

  /** Runs an action within a call, even after a failure, unless the transaction has ended. */
  def unlessEnded(action: => Unit): Unit = {
    acquire()
    try if (!hasEnded) action
    finally exit()
  }

  /**
   * Ends the transaction: no call begins any more, and none runs when this returns.
   *
   * @return true if this was the first call of `end`
   */
  def end(): Boolean = {
    hasEnded = true
    isOpen = false
    acquire()
    exit()
    finished.compareAndSet(false, true)
  }
}

private object CallLock {
  private val maxSpins = 1000
  private val pauseNs = 50000L
}
