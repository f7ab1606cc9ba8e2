package org.apache.spark.sql.execution.streaming.state.incremental.observed

import scala.collection.mutable

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.agent.{
  AgentException, FullAnswer, MergedStore, MergeFailed
}
import org.apache.spark.sql.execution.streaming.state.incremental.local.{Committed, LocalStore, MergeWatcher, Opened}
import org.apache.spark.sql.execution.streaming.state.incremental.settings.Declarations

/**
 * The reports of a store to the driver, of its commits and merges, and the full checkpoints that the driver requests.
 * Nothing here throws, waits for the driver or slows a task. Safe for any thread.
 *
 * @param key         identifies the store
 * @param root        the query's checkpoint directory for state, as a URI
 * @param local       the store
 * @param committedId returns the id under which Spark committed a version, from the query's commit log; None if Spark
 *                    gives no ids (checkpoint format 1)
 */
final class ObservedStore(val key: StoreKey, root: String, local: LocalStore, committedId: Long => Option[String])
    extends MergeWatcher with Logging {
  private val waiting = mutable.Map.empty[String, FullCommand]
  private var known = false

  // The restarts before the provider was made do not belong to this run.
  private val restartsBefore = local.agentRestarts

  /**
   * Reports a commit.
   *
   * @param made   the commit
   * @param opened the start of its transaction
   */
  def committed(made: Committed, opened: Opened): Unit =
    try {
      introduce()
      Reporter.send(report(made, opened))
    } catch { case Harmless(e) => logDebug(s"A commit of $key was not reported", e) }

  /** Notes that the store is closed: requests that still wait fail. */
  def close(): Unit = {
    Reporter.remove(this)
    val left = synchronized {
      val all = waiting.values.toSeq
      waiting.clear()
      all
    }
    val closed = Failed("busy", "the store was closed on this executor; another may have opened it: ask again")
    left.foreach(answer(_, Left(closed)))
  }

  /** Carries a command of the driver out; its answer is a report. */
  private[observed] def full(command: FullCommand): Unit = {
    synchronized(waiting.put(command.request, command))
    try {
      val asked = ask(command)
      if (asked.already) end(command.request, Right(asked.version.number), already = true)
    } catch {
      case e: AgentException => end(command.request, Left(failure(e)))
      case Harmless(e) => end(command.request, Left(Failed("internal", e.toString)))
    }
  }

  override def merged(made: MergedStore): Unit = guarded {
    Reporter.send(MergeReport(
      key, System.currentTimeMillis, made.version.number, made.kind, made.reason, made.tookMs, made.uploadedBytes,
      made.sharedFiles, made.newFiles, made.ownFiles, None))
    if (made.kind == Declarations.fullMerge) {
      val (met, early) = synchronized(waiting.values.toSeq).partition(_.version <= made.version.number)
      met.foreach(command => end(command.request, Right(made.version.number)))
      early.foreach(full) // a full merge of an older version ran in place of the requested merge
    }
  }

  override def failed(failure: MergeFailed): Unit = guarded {
    Reporter.send(MergeReport(
      key, System.currentTimeMillis, failure.version, failure.kind, failure.reason, 0, 0, 0, 0, 0,
      Some(this.failure(failure.error))))
    if (failure.kind == Declarations.fullMerge) {
      synchronized(waiting.keys.toSeq).foreach(request => end(request, Left(this.failure(failure.error))))
    }
  }

  private def ask(command: FullCommand): FullAnswer =
    local.full(command.version, committedId(command.version), command.reason)

  private def end(request: String, outcome: Either[Failed, Long], already: Boolean = false): Unit =
    synchronized(waiting.remove(request)).foreach(answer(_, outcome, already))

  private def answer(command: FullCommand, outcome: Either[Failed, Long], already: Boolean = false): Unit =
    Reporter.send(FullReport(
      key, System.currentTimeMillis, command.request, outcome.toOption, already, outcome.left.toOption))

  private def introduce(): Unit = {
    val first = synchronized {
      val was = known
      known = true
      !was
    }
    if (first) {
      local.merges.watch(this)
      Reporter.add(this)
    }
  }

  private def report(made: Committed, opened: Opened): StoreReport = {
    val chain = made.answer.chain
    val merges = local.merges.counters
    val (failuresInRow, lastFailure) = local.merges.failing
    val memory = local.memoryUse
    StoreReport(
      key = key, atMs = System.currentTimeMillis, root = root, version = made.version.number, id = made.version.id,
      keys = made.keys,
      variables = made.families.byName.toSeq
        .map { case (name, family) => Variable(name, family.internal, family.keys) },
      deltaBytes = made.delta.bytes, writeMs = made.writeMs, storeMs = made.commitMs,
      memoryBytes = memory.memtableBytes + memory.recentBytes + memory.indexBytes + memory.baseBytes,
      chainDeltas = chain.deltas, deltasSinceFull = chain.deltasSinceFull,
      mergesSinceFull = chain.mergesSinceFull, chainFiles = chain.files, chainBytes = chain.bytes,
      sharedFiles = chain.sharedFiles, sharedBytes = chain.sharedBytes, snapshotVersion = chain.snapshotVersion,
      snapshotKind = chain.snapshotKind, fullVersion = chain.fullVersion,
      sinceSnapshotMs = made.answer.ages.sinceSnapshotMs, sinceFullMs = made.answer.ages.sinceFullMs,
      predictedMs = Some(made.answer.predictedRestoreMs),
      objectiveMs = Some(made.answer.restoreObjectiveMs).filter(_ > 0),
      merges = MergeCounts(merges.merges, merges.fulls, merges.ingests, merges.failures),
      failuresInRow = failuresInRow, lastFailure = lastFailure.map(failure), damagedFiles = local.damagedFiles,
      agentRestarts = local.agentRestarts, agentRestartsBefore = restartsBefore,
      restored = opened.restored.map { answer =>
        RestoreReport(
          answer.sparse.nonEmpty, opened.loadMs, answer.predictedMs, answer.files, answer.deltas, answer.fetchedBytes)
      })
  }

  private def failure(e: AgentException): Failed = Failed(e.kind, e.getMessage)

  private def guarded(body: => Unit): Unit =
    try body
    catch { case Harmless(e) => logInfo(s"A merge of $key was not reported", e) }
}
