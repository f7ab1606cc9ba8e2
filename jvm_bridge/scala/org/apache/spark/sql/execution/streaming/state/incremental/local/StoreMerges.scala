package org.apache.spark.sql.execution.streaming.state.incremental.local

import java.util.concurrent.TimeUnit

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.agent._
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.settings.Declarations

/** Counters of a store's merges since its provider was opened; the numbers of files are of the last published merge. */
final case class MergeCounters(
    merges: Long = 0,
    fulls: Long = 0,
    ingests: Long = 0,
    failures: Long = 0,
    totalMs: Long = 0,
    fullMs: Long = 0,
    uploadedBytes: Long = 0,
    sharedFiles: Long = 0,
    newFiles: Long = 0,
    ownFiles: Long = 0,
    lastSnapshotVersion: Long = -1) {
  /** Returns the growth of counts, durations and bytes since earlier counters of the same store. */
  def since(earlier: MergeCounters): MergeCounters = copy(
    merges = merges - earlier.merges,
    fulls = fulls - earlier.fulls,
    ingests = ingests - earlier.ingests,
    failures = failures - earlier.failures,
    totalMs = totalMs - earlier.totalMs,
    fullMs = fullMs - earlier.fullMs,
    uploadedBytes = uploadedBytes - earlier.uploadedBytes)

  private[local] def plus(merged: MergedStore): MergeCounters =
    if (merged.kind == Declarations.ingestMerge) copy(ingests = ingests + 1)
    else {
      val full = if (merged.kind == Declarations.fullMerge) 1 else 0
      copy(
        merges = merges + 1,
        fulls = fulls + full,
        totalMs = totalMs + merged.tookMs,
        fullMs = fullMs + full * merged.tookMs,
        uploadedBytes = uploadedBytes + merged.uploadedBytes,
        sharedFiles = merged.sharedFiles,
        newFiles = merged.newFiles,
        ownFiles = merged.ownFiles,
        lastSnapshotVersion = math.max(lastSnapshotVersion, merged.version.number))
    }
}

/** Hears of the merges of a store when they end, in the thread that reads the agent's events. */
trait MergeWatcher {
  /** Called after a merge that succeeded. */
  def merged(made: MergedStore): Unit

  /** Called after a merge that failed. */
  def failed(failure: MergeFailed): Unit
}

/**
 * The merges of one store, which the agent makes by its own schedule: counted, and taken as bases. Safe for any thread.
 *
 * @param offer takes the result of a merge as the base of new versions
 * @param published called with each version whose snapshot is in checkpoint storage
 */
final class StoreMerges(
    store: String,
    agent: AgentStore,
    offer: MergedStore => Unit,
    published: Long => Unit)
    extends Logging {
  private var counts = MergeCounters()
  private var failuresInRow = 0
  private var lastFailure: AgentException = _
  private var ages = SnapshotAges(None, None)
  private var agesAtNs = 0L

  @volatile private var watcher: Option[MergeWatcher] = None

  agent.listen {
    case event: MergeEnded =>
      merged(event)
      watcher.foreach(_.merged(event.merged))
    case event: MergeFailed =>
      failed(event.version, event.kind, event.failuresInRow, event.error)
      watcher.foreach(_.failed(event))
    case _ => ()
  }

  /** Sets the watcher, which hears of each merge that ends from now on. */
  def watch(by: MergeWatcher): Unit = watcher = Some(by)

  /** Returns how many merges failed since the last success, and the last failure if there are any. */
  def failing: (Int, Option[AgentException]) =
    synchronized(failuresInRow -> Option(lastFailure).filter(_ => failuresInRow > 0))

  def counters: MergeCounters = synchronized(counts)

  /** Returns how long ago the newest snapshot, and the newest full snapshot, were made; None if there is none. */
  def snapshotAges: SnapshotAges = synchronized {
    val elapsedMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime - agesAtNs)
    SnapshotAges(ages.sinceSnapshotMs.map(_ + elapsedMs), ages.sinceFullMs.map(_ + elapsedMs))
  }

  /** Notes the ages of the snapshots as the agent reports them now. */
  private[local] def learned(now: SnapshotAges): Unit = synchronized {
    ages = now
    agesAtNs = System.nanoTime
  }

  /**
   * Makes a snapshot of that version now, because Spark asks for one. Its result is an event, as of other merges. If it
   * fails, the commit remains valid.
   */
  def snapshotNow(version: VersionId): Unit =
    try {
      agent.snapshot(version, "Spark asked for a snapshot").foreach { reason =>
        logDebug(s"No snapshot of $store was made: $reason")
      }
    } catch {
      case e: AgentException =>
        logWarning(s"Spark asked for a snapshot of $store at version ${version.number}, and there is none", e)
    }

  /** Throws an AgentException if more merges failed in a row than the option tolerates. */
  def check(): Unit = synchronized {
    val tolerable = agent.opened.limits.tolerableFailedMerges
    if (tolerable >= 0 && failuresInRow > tolerable) {
      throw new AgentException("storage",
        s"$failuresInRow merges of $store failed in a row, more than " +
          s"${AgentStore.Prefix}tolerableFailedMerges = $tolerable allows. The last failure: " +
          lastFailure.getMessage,
        option = Some(AgentStore.Prefix + "tolerableFailedMerges"), cause = lastFailure)
    }
  }

  private def merged(event: MergeEnded): Unit = {
    synchronized { failuresInRow = event.failuresInRow }
    learned(event.ages)
    took(event.merged)
  }

  private def took(made: MergedStore): Unit = {
    synchronized { counts = counts.plus(made) }
    logInfo(s"Merge (${made.kind}) of $store at version ${made.version.number} took ${made.tookMs} ms: " +
      made.reason)
    if (made.kind != Declarations.ingestMerge) published(made.version.number)
    offer(made)
  }

  private def failed(version: Long, kind: String, inRow: Int, error: AgentException): Unit = synchronized {
    failuresInRow = inRow
    lastFailure = error
    counts = counts.copy(failures = counts.failures + 1)
    logWarning(
      s"Merge ($kind) of $store at version $version failed, $inRow in a row; nothing is lost, the " +
        "chain of deltas stays longer",
      error)
  }
}
