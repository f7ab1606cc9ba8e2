package org.apache.spark.sql.execution.streaming.state.incremental.local

import java.util.concurrent.TimeUnit

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.agent._
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.settings.Declarations

/** What a store's merges came to since its provider was opened; files are those of the last that published. */
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
  /** What came on top of earlier counters of the same store: counts, durations and bytes. */
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

/** Hears of the merges of a store as they end, in the thread that reads the agent's events. */
trait MergeWatcher {
  /** A merge ended well. */
  def merged(made: MergedStore): Unit

  /** A merge failed. */
  def failed(failure: MergeFailed): Unit
}

/**
 * What is known of the merges of one store, which the agent makes by its own schedule: counted, and taken as
 * bases. Safe for any thread.
 *
 * @param offer takes what a merge made, as the base of what comes
 * @param published is told of each version whose snapshot is in checkpoint storage
 */
final class StoreMerges(
    store: String,
    agent: AgentStore,
    offer: MergedStore => Unit,
    published: Long => Unit) extends Logging {
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

  /** From now on that watcher hears of each merge that ends. */
  def watch(by: MergeWatcher): Unit = watcher = Some(by)

  /** How many merges failed since the last that did not, and the last failure if there are any. */
  def failing: (Int, Option[AgentException]) =
    synchronized(failuresInRow -> Option(lastFailure).filter(_ => failuresInRow > 0))

  def counters: MergeCounters = synchronized(counts)

  /** How long ago the newest snapshot, and the newest full one, were made; None where there is none. */
  def snapshotAges: SnapshotAges = synchronized {
    val elapsedMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime - agesAtNs)
    SnapshotAges(ages.sinceSnapshotMs.map(_ + elapsedMs), ages.sinceFullMs.map(_ + elapsedMs))
  }

  /** The agent has told how old they are now. */
  private[local] def learned(now: SnapshotAges): Unit = synchronized {
    ages = now
    agesAtNs = System.nanoTime
  }

  /**
   * Makes a snapshot of that version now, because Spark asks for one. What came of it is an event, as of other
   * merges. Where it fails the commit stands.
   */
  def snapshotNow(version: VersionId): Unit =
    try {
      agent.snapshot(version, "Spark asked for a snapshot").foreach { why =>
        logDebug(s"No snapshot of $store was made: $why")
      }
    } catch {
      case e: AgentException =>
        logWarning(s"Spark asked for a snapshot of $store at version ${version.number}, and there is none", e)
    }

  /** Throws where more merges failed in a row than the option tolerates. */
  def check(): Unit = synchronized {
    val tolerable = agent.opened.limits.tolerableFailedMerges
    if (tolerable >= 0 && failuresInRow > tolerable) {
      throw new AgentException("storage", s"$failuresInRow merges of $store failed in a row, more than " +
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
    logWarning(s"Merge ($kind) of $store at version $version failed, $inRow in a row; nothing is lost, the " +
      "chain of deltas stays longer", error)
  }
}
