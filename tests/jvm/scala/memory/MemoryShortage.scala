package org.apache.spark.sql.execution.streaming.state.incremental.memory

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
