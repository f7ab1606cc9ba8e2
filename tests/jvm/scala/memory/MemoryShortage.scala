package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.io.IOException
import java.util.concurrent.atomic.AtomicInteger

/** Lets memory run out, in JVMs whose memory is checked. */
private[incremental] object MemoryShortage {
  private val why = "a test has no more"

  /** Does something during which memory is allocated or copied that many times, and not once more. Whether that happened. */
  def after(uses: Int)(action: => Unit): Boolean = {
    var left = uses
    MemoryGuard.beforeUse = () => {
      left -= 1
      if (left == -1) throw new OutOfMemoryError(why)
    }
    try action
    catch { case e: OutOfMemoryError if e.getMessage == why => }
    finally MemoryGuard.beforeUse = () => ()
    left < 0
  }
}

/** Lets the local disk fail, in JVMs whose memory is checked. */
private[incremental] object DiskFailure {

  /**
   * Does something during which files are opened, read, written and mapped that many times, and the next time fails.
   * Whether that happened.
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
