package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.io.IOException
import java.util.concurrent.atomic.AtomicInteger

/** Exhausts memory, in JVMs whose memory is checked. */
private[incremental] object MemoryShortage {
  private val reason = "a test has no more"

  /**
   * Runs an action during which memory is allocated or copied this many times, and fails the next time. Returns true if
   * an allocation or copy failed.
   *
   * @param error makes the error of a message
   */
  def after(uses: Int, error: String => Error = new OutOfMemoryError(_))(action: => Unit): Boolean = {
    var left = uses
    MemoryGuard.beforeUse = () => {
      left -= 1
      if (left == -1) throw error(reason)
    }
    try action
    catch { case e: Throwable if Option(e.getCause).getOrElse(e).getMessage == reason => }
    finally MemoryGuard.beforeUse = () => ()
    left < 0
  }
}

/** Fails the local disk, in JVMs whose memory is checked. */
private[incremental] object DiskFailure {

  /**
   * Runs an action during which files are opened, read, written and mapped this many times, and fails the next time.
   * Returns true if a use failed.
   */
  def after(uses: Int)(action: => Unit): Boolean = {
    val left = new AtomicInteger(uses)
    MemoryGuard.beforeFileUse = () => if (left.getAndDecrement() == 0) throw new IOException("a test has no disk")
    try action
    catch { case _: IOException if left.get < 0 => }
    finally MemoryGuard.beforeFileUse = () => ()
    left.get < 0
  }
}
