package statestore.benchmark

import scala.jdk.CollectionConverters._

/**
 * The threads on which the incremental store merges, in its own time rather than in maintenance calls. What
 they do * belongs to the segment in which it began.
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
