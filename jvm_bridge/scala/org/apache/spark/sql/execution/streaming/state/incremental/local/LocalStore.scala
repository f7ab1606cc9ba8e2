package org.apache.spark.sql.execution.streaming.state.incremental.local

import java.io.IOException
import java.nio.channels.ClosedByInterruptException
import java.nio.file.{Files, Path}
import java.util.concurrent.{ThreadPoolExecutor, TimeUnit}
import java.util.concurrent.locks.ReentrantLock

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.agent.{AgentException, AgentDirectory, AgentStore, CommitAnswer, DeltaFiles, FullAnswer, MergedStore, RestoreAnswer}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{ColumnFamilies, DeltaFile, DeltaMetadata, VersionId}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{LocalDiskException, MemoryUse, NativeHeap, StoreMemory}
import org.apache.spark.sql.execution.streaming.state.incremental.transaction.{LookUps, StateConf, StoreVersions, Transaction}
import org.apache.spark.sql.execution.streaming.state.RocksDBLoader
import org.apache.spark.util.ThreadUtils

/** A transaction with the version that it began on, and the column families there. */
final case class Opened(
    transaction: Transaction,
    start: AttemptStart,
    families: ColumnFamilies,
    loadMs: Long,
    restored: Option[RestoreAnswer])

/** What a commit did, and what the transaction had counted by then. */
final case class Committed(
    version: VersionId,
    families: ColumnFamilies,
    keys: Long,
    lookUps: LookUps,
    delta: DeltaFile,
    answer: CommitAnswer,
    writeMs: Long,
    commitMs: Long)

/**
 * The versions of one store as this executor has them: begins transactions, in memory where it can and after
 * a restore by the agent where it cannot; commits them; takes bases from merges. Safe for any thread. Nothing
 * is read or started before the first transaction.
 *
 * It is closed when `close` was called and the last transaction has ended.
 *
 * @param ids whether Spark says by ids which attempt at a version it means (its checkpoint format 2)
 * @param published is told of each version whose snapshot is in checkpoint storage
 */
final class LocalStore(val name: String, agent: AgentStore, ids: Boolean, published: Long => Unit)
  extends Logging {
  private val restoring = new ReentrantLock
  private val attempts: Attempts = if (ids) new SparksAttempts else new NumberedAttempts(agent)
  private val families = new KnownFamilies
  private val readers = new RestoreForReader
  private var users = 0
  private var closing = false
  private var disposed = false

  @volatile private var touched = false

  // With a lock of its own: the agent may be long in coming, and nobody else is to wait meanwhile.
  private object opening {
    lazy val state: StoreVersions = {
      StoreMemory.shared.setBudget(agent.opened.memoryBudgetBytes)
      touched = true
      RocksDBLoader.loadLibrary() // off the task's thread: a load that is interrupted could not be repeated
      new StoreVersions(StoreMemory.shared, StateConf(agent.opened.incoming.resolve("spill").toFile))
    }
  }

  private def state: StoreVersions = opening.state

  val merges = new StoreMerges(name, agent, offer, published)
  private val bases = new StoreBases(name, agent, state, answer => merges.learned(answer.ages))
  val verification = new BackgroundVerification(name, state, agent.opened.limits.verificationBytesPerS)

  @volatile private var newestVersion: Option[VersionId] = None

  /** The newest version committed here. */
  def newest: Option[VersionId] = newestVersion

  def memoryUse: MemoryUse = state.memoryUse

  /** How often a block of a local file was found damaged since the provider was opened. */
  def damagedFiles: Long = bases.damaged

  /** How often the agent of this JVM was started again, since the JVM began. */
  def agentRestarts: Long = agent.agentRestarts

  /**
   * Begins on exactly that version; without Spark's ids on the attempt that its number stands for. Each
   * transaction must be ended with [[ended]] after its commit or abort.
   *
   * @param task the task that opens the store, where there is one
   * @throws AgentException where the version cannot be restored
   */
  def begin(version: VersionId, readOnly: Boolean, task: Option[TaskAttempt]): Opened = used {
    merges.check()
    val startNs = System.nanoTime
    val begun = opened(version, readOnly, task, startNs)
    verification.goOn()
    readers.counted(begun.getOrElse(restore(version, readOnly, task, None, startNs)), readOnly)
  }

  /** Begins on that version, restored from the snapshot of another and the deltas after it. */
  def replay(snapshot: VersionId, version: VersionId, readOnly: Boolean, task: Option[TaskAttempt]): Opened =
    used(restore(version, readOnly, task, Some(snapshot), System.nanoTime))

  /** Begins to write where a reader is open, at the same version. */
  def beginAgain(start: AttemptStart): Opened = {
    val startNs = System.nanoTime
    readers.forget()
    val again = opened(start.version, readOnly = false, start.task, startNs)
      .getOrElse(restore(start.version, readOnly = false, start.task, None, startNs))
    again.copy(start = again.start.copy(seen = start.seen.orElse(again.start.seen)))
  }

  /** Begins on nothing; a commit becomes the version after that one. */
  def beginEmpty(version: VersionId): Opened = used {
    restoring.lockInterruptibly()
    try {
      state.resetEmpty()
      val transaction = state.tryBegin(VersionId.empty, readOnly = false).get
      Opened(transaction, AttemptStart.onNothing(version), ColumnFamilies.initial, 0, None)
    } finally restoring.unlock()
  }

  /**
   * Makes the changes of the transaction the next version: durable in checkpoint storage on return. Call
   * [[settle]] when all else for this commit is done.
   *
   * @param start from where the transaction began
   * @param before the column families that there were
   * @param now the column families that there are now
   */
  def commit(transaction: Transaction, start: AttemptStart, before: ColumnFamilies, now: ColumnFamilies): Committed = {
    val version = attempts.next(start)
    val file = onLocalDisk(AgentDirectory.createPrivately(agent.opened.incoming))
      .resolve(s"${version.number}_${version.id.get}.sst")
    try {
      val startNs = System.nanoTime
      val keys = transaction.keys
      val counted = now.counted(before, keys, transaction.growthByFamily)
      val delta = onLocalDisk(
        transaction.writeDelta(file.toFile, metadata(version, start.parent, transaction, counted).toJson))
      val writtenNs = System.nanoTime
      val answer = agent.commit(
        version, start.parent, start.seen, file, delta.bytes, delta.crc32, keys, memoryShort = state.wantsIngest)
      val writeMs = TimeUnit.NANOSECONDS.toMillis(writtenNs - startNs)
      val committed = Committed(version, counted, keys, transaction.lookUps, delta, answer,
        writeMs, sinceMs(writtenNs))
      transaction.committed(version)
      families.add(version, counted)
      attempts.committed(version, answer.seen)
      forgetBefore(state.oldestNumber)
      newestVersion = Some(version)
      merges.learned(answer.ages)
      committed
    } catch {
      case e: Throwable =>
        Files.deleteIfExists(file)
        if (LocalStore.isConflict(e)) attempts.refused() else attempts.uncertain(version)
        throw e
    }
  }

  /** Forgets what is known of versions that no transaction can begin on without a restore. */
  private def forgetBefore(number: Long): Unit = {
    families.forgetBefore(number)
    attempts.forgetBefore(number)
  }

  /** The task that had committed that version failed afterwards: the next one does not build on it unseen. */
  def failed(version: VersionId): Unit = attempts.failed(version)

  /** Does soon, beside what Spark does between two batches, what the next would wait for. Never throws. */
  def settle(): Unit = LocalStore.threads.execute(() => settleNow())

  private def settleNow(): Unit =
    try {
      state.indexCommitted()
      NativeHeap.trim()
    } catch {
      case NonFatal(e) => logWarning(s"The newest version of $name is brought into the index by the next batch", e)
    }

  /** Takes what a merge made as the base of what comes; gives it back where the store is closed. */
  private def offer(made: MergedStore): Unit = {
    val base = bases.merged(made)
    if (synchronized(disposed)) base.onClose()
    else state.offerBase(base)
  }

  /** A transaction that [[begin]] or [[replay]] gave was committed or aborted. */
  def ended(): Unit = {
    val last = synchronized {
      users -= 1
      closing && users == 0
    }
    if (last) dispose()
  }

  /**
   * Asks for a full checkpoint of a version that Spark has committed, within the limits of merges.
   *
   * @param version number of the version
   * @param id      its id if the caller knows it
   * @param reason  who asks, for people
   * @return the version that is meant, and whether its snapshot is a full one already; otherwise the watcher of
   *         [[merges]] hears how the merge ended
   * @throws AgentException if this executor does not have that version
   */
  def full(version: Long, id: Option[String], reason: String): FullAnswer = agent.full(version, id, reason)

  /** Deletes what no retained version needs. */
  def cleanup(): Unit = newest.foreach { version =>
    val answer = agent.cleanup(version)
    logDebug(s"Cleanup of $name: $answer")
  }

  /** Local files of the deltas of the versions from `first` up to that one, to be given to [[releaseDeltas]]. */
  def deltas(version: VersionId, first: Long): DeltaFiles = agent.deltas(version, first)

  /** The files are of no use any more. */
  def releaseDeltas(deltas: DeltaFiles): Unit = agent.release(deltas.directory)

  /** Any number of times, from any thread. */
  def close(): Unit = {
    val idle = synchronized {
      closing = true
      users == 0
    }
    if (idle) dispose()
  }

  private def dispose(): Unit = {
    val first = synchronized {
      val was = disposed
      disposed = true
      !was
    }
    if (first) {
      if (touched) state.close()
      if (agent.isOpened) agent.close()
    }
  }

  private def used(body: => Opened): Opened = {
    synchronized {
      if (closing) throw new IllegalStateException(s"the provider of $name is closed")
      users += 1
    }
    try body
    catch {
      case e: Throwable =>
        ended()
        throw e
    }
  }

  /** From memory, where that has the version. */
  private def opened(
      named: VersionId, readOnly: Boolean, task: Option[TaskAttempt], startNs: Long): Option[Opened] =
    for {
      version <- attempts.known(named)
      known <- families.of(version)
      start = attempts.start(version, task, readOnly)
      transaction <- state.tryBegin(version, readOnly)
    } yield Opened(transaction, start, known, sinceMs(startNs), None)

  private def restore(
      named: VersionId,
      readOnly: Boolean,
      task: Option[TaskAttempt],
      snapshot: Option[VersionId],
      startNs: Long): Opened = {
    restoring.lockInterruptibly()
    try {
      val meanwhile = if (snapshot.isEmpty) opened(named, readOnly, task, startNs) else None
      meanwhile.getOrElse {
        val (start, answer) =
          if (named.number == 0) {
            state.resetEmpty()
            (attempts.start(VersionId.empty, task, readOnly), None)
          } else {
            val answer = resetTo(named, snapshot)
            (AttemptStart.on(VersionId(named.number, answer.id), task, Some(answer.seen)), Some(answer))
          }
        val transaction = state.tryBegin(start.version, readOnly).getOrElse(
          throw new AgentException("internal",
            s"version ${named.number} of $name was restored but cannot be read"))
        verification.restored()
        Opened(transaction, start, families.of(start.version).get, sinceMs(startNs), answer)
      }
    } finally restoring.unlock()
  }

  private def resetTo(version: VersionId, snapshot: Option[VersionId]): RestoreAnswer = {
    val (answer, restoredFamilies) = bases.restore(version, snapshot, thorough = state.isDamaged)
    val restored = VersionId(version.number, answer.id)
    families.add(restored, restoredFamilies)
    attempts.restored(restored, answer.seen)
    logInfo(s"Restored version ${version.number} of $name: $answer")
    answer
  }

  /** Names the directory where the executor's disk fails: Spark shows the error of a disk without any. */
  private def onLocalDisk[T](body: => T): T =
    try body
    catch {
      case e @ (_: ClosedByInterruptException | _: LocalDiskException) => throw e
      case e: IOException => throw AgentException.ofLocalDisk(agent.opened.incoming.toString, e)
    }

  private def metadata(
      version: VersionId, parent: String, transaction: Transaction, families: ColumnFamilies): DeltaMetadata =
    DeltaMetadata(version, parent, transaction.keys, transaction.puts, transaction.removes, families,
      s"incremental-state-store ${AgentDirectory.version}")

  private def sinceMs(startNs: Long): Long = TimeUnit.NANOSECONDS.toMillis(System.nanoTime - startNs)
}

private object LocalStore {
  // For what is done between two batches.
  lazy val threads: ThreadPoolExecutor = ThreadUtils.newDaemonCachedThreadPool("state-store-settle")

  def isConflict(e: Throwable): Boolean = e match {
    case refused: AgentException => refused.kind == "conflict"
    case _ => false
  }
}
