package org.apache.spark.sql.execution.streaming.state.incremental.local

import java.io.IOException
import java.nio.channels.ClosedByInterruptException
import java.nio.file.Path
import java.util.UUID
import java.util.concurrent.{Executor, RejectedExecutionException, ThreadPoolExecutor, TimeUnit}
import java.util.concurrent.atomic.AtomicReference
import java.util.concurrent.locks.ReentrantLock

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.RocksDBLoader
import org.apache.spark.sql.execution.streaming.state.incremental.agent._
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{
  ColumnFamilies, DeltaFile, DeltaMetadata, VersionId
}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{
  LocalDiskException, MemoryUse, NativeHeap, StoreMemory
}
import org.apache.spark.sql.execution.streaming.state.incremental.settings.Declarations
import org.apache.spark.sql.execution.streaming.state.incremental.transaction.{
  LookUps, StateConf, StoreVersions, Transaction
}
import org.apache.spark.util.ThreadUtils

// A store as an executor has it. A transaction begins on a version in memory, or on one that the agent restores; a
// commit writes the delta and gives it to the agent; the agent's merges arrive as events and replace the base.

/**
 * The task that opens a store.
 *
 * @param application 8 hexadecimal digits that stand for the Spark application
 * @param number Spark's task attempt id, which grows with each task that the application launches
 * @param again true if Spark has launched a task for the same partition of the same job before
 */
final case class TaskAttempt(application: String, number: Long, again: Boolean)

/**
 * The start of an attempt at the version after `version`.
 *
 * @param parent the parent that its delta has to name
 * @param seen attempts in storage above `version` at that time; None if Spark gives ids, or nobody has asked yet
 */
final case class AttemptStart(
    version: VersionId,
    parent: String,
    task: Option[TaskAttempt] = None,
    seen: Option[SeenAttempts] = None)

object AttemptStart {
  /** Returns the start of an attempt on a version. */
  def on(version: VersionId, task: Option[TaskAttempt], seen: Option[SeenAttempts]): AttemptStart =
    AttemptStart(version, if (version.number == 0) Declarations.emptyParent else idOf(version), task, seen)

  /** Returns the start of an attempt that builds on nothing but takes the number after that of `version`. */
  def onNothing(version: VersionId): AttemptStart = AttemptStart(version, Declarations.emptyParent)

  private def idOf(version: VersionId): String =
    version.id.getOrElse(throw new IllegalStateException(s"version ${version.number} has no id to build on"))
}

/** A transaction, the version on which it began, and the column families of that version. */
final case class OpenTransaction(
    transaction: Transaction,
    start: AttemptStart,
    families: ColumnFamilies,
    loadMs: Long,
    restored: Option[RestoreAnswer])

/** A commit: its version, its delta, and the counters of its transaction. */
final case class CommittedVersion(
    version: VersionId,
    families: ColumnFamilies,
    keys: Long,
    lookUps: LookUps,
    delta: DeltaFile,
    answer: CommitAnswer,
    writeMs: Long,
    commitMs: Long)

/**
 * The versions of one store in this executor: begins transactions, in memory if memory has the version and otherwise
 * after a restore by the agent; commits them; takes bases from merges. Safe for any thread. Reads and starts nothing
 * before the first transaction.
 *
 * The store is closed when `close` was called and the last transaction has ended.
 *
 * @param ids true if Spark names attempts at a version by ids (its checkpoint format 2)
 * @param published called with each version whose snapshot is in checkpoint storage
 */
final class LocalStore(val name: String, agent: AgentStore, ids: Boolean, published: Long => Unit) extends Logging {
  private val restoring = new ReentrantLock
  private val attempts: Attempts = if (ids) new SparkAttempts else new NumberedAttempts(agent)
  private val families = new KnownFamilies
  private val readers = new RestoreForReader
  private var users = 0
  private var closing = false
  private var disposed = false

  @volatile private var touched = false

  // A lazy value of its own lock: the agent may be slow to answer, and no other thread has to wait for this one.
  private object opening {
    lazy val state: StoreVersions = {
      StoreMemory.shared.setBudget(agent.opened.memoryBudgetBytes)
      RocksDBLoader.loadLibrary() // not in the task's thread: an interrupted load could not be repeated
      val versions = new StoreVersions(StoreMemory.shared, StateConf(agent.opened.incoming.resolve("spill").toFile))
      touched = true
      versions
    }
  }

  private def state: StoreVersions = opening.state

  val merges = new StoreMerges(name, agent, offer, published)
  private val bases = new StoreBases(name, agent, state, answer => merges.learned(answer.ages))
  val verification = new BackgroundVerification(name, state, agent.opened.limits.verificationBytesPerS)

  @volatile private var newestVersion: Option[VersionId] = None

  /** Returns the newest version committed here. */
  def newest: Option[VersionId] = newestVersion

  def memoryUse: MemoryUse = state.memoryUse

  /** Returns how often a block of a local file was found damaged since the provider was opened. */
  def damagedFiles: Long = bases.damaged

  /** Returns how often the agent of this JVM was started again, since the JVM began. */
  def agentRestarts: Long = agent.agentRestarts

  /**
   * Begins a transaction on exactly that version; without Spark's ids, on the attempt that its number stands for. The
   * caller ends each transaction with [[ended]] after its commit or abort.
   *
   * @param task the task that opens the store, if there is one
   * @throws AgentException if the version cannot be restored
   */
  def begin(version: VersionId, readOnly: Boolean, task: Option[TaskAttempt]): OpenTransaction = used {
    merges.check()
    val startNs = System.nanoTime
    val inMemory = opened(version, readOnly, task, startNs)
    verification.goOn()
    readers.counted(inMemory.getOrElse(restore(version, readOnly, task, None, startNs)), readOnly)
  }

  /** Begins a transaction on a version that is restored from the snapshot of another and the deltas after it. */
  def replay(snapshot: VersionId, version: VersionId, readOnly: Boolean, task: Option[TaskAttempt]): OpenTransaction =
    used(restore(version, readOnly, task, Some(snapshot), System.nanoTime))

  /** Begins a transaction that writes, at the version at which a reader is open. */
  def beginAgain(start: AttemptStart): OpenTransaction = {
    val startNs = System.nanoTime
    readers.forget()
    val again = opened(start.version, readOnly = false, start.task, startNs)
      .getOrElse(restore(start.version, readOnly = false, start.task, None, startNs))
    again.copy(start = again.start.copy(seen = start.seen.orElse(again.start.seen)))
  }

  /** Begins a transaction on nothing; its commit becomes the version after that one. */
  def beginEmpty(version: VersionId): OpenTransaction = used {
    restoring.lockInterruptibly()
    try {
      state.resetEmpty()
      val transaction = state.tryBegin(VersionId.empty, readOnly = false).get
      OpenTransaction(transaction, AttemptStart.onNothing(version), ColumnFamilies.initial, 0, None)
    } finally restoring.unlock()
  }

  /**
   * Makes the changes of the transaction the next version, which is durable in checkpoint storage on return. Call
   * [[prepareNextBatch]] when all other work for this commit is done.
   *
   * @param start the start of the transaction
   * @param before the column families at the start
   * @param now the column families now
   * @throws AgentException if the delta cannot be written or uploaded; of kind `conflict` if the agent refuses it
   */
  def commit(
      transaction: Transaction, start: AttemptStart, before: ColumnFamilies, now: ColumnFamilies): CommittedVersion = {
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
        NewDelta(version, start.parent, start.seen, file, delta.bytes, delta.crc32, keys, state.wantsIngest),
        later = work => LocalStore.later(() => work()))
      val writeMs = TimeUnit.NANOSECONDS.toMillis(writtenNs - startNs)
      val committed = CommittedVersion(version, counted, keys, transaction.lookUps, delta, answer,
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
        // Later attempts depend on this; the file may not be removable, and goes with its directory then.
        if (LocalStore.isConflict(e)) attempts.refused() else attempts.uncertain(version)
        file.toFile.delete()
        throw e
    }
  }

  /** Forgets versions on which no transaction can begin without a restore. */
  private def forgetBefore(number: Long): Unit = {
    families.forgetBefore(number)
    attempts.forgetBefore(number)
  }

  /** Notes that the task of a committed version failed afterwards: the next attempt asks before it builds on it. */
  def failed(version: VersionId): Unit = attempts.failed(version)

  /** Starts, while Spark is between two batches, the work for which the next batch would wait. Never throws. */
  def prepareNextBatch(): Unit = LocalStore.later(() => prepareNow())

  private def prepareNow(): Unit =
    Supervised.guarded(s"The next batch brings the newest version of $name into the index") {
      state.indexCommitted()
      NativeHeap.trim()
    }

  /** Takes the result of a merge as the base of new versions; gives it back if the store is closed. */
  private def offer(made: MergedStore): Unit = {
    val base = bases.merged(made)
    if (synchronized(disposed)) base.onClose()
    else state.offerBase(base)
  }

  /** Notes that a transaction of [[begin]] or [[replay]] was committed or aborted. */
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
   * @return the version of the checkpoint, which may have a full snapshot already; if not, the watcher of [[merges]]
   *         hears how the merge ended
   * @throws AgentException if this executor does not have that version
   */
  def full(version: Long, id: Option[String], reason: String): FullAnswer = agent.full(version, id, reason)

  /** Deletes the files that no retained version needs. */
  def cleanup(): Unit = newest.foreach { version =>
    val answer = agent.cleanup(version)
    logDebug(s"Cleanup of $name: $answer")
  }

  /** Fetches the deltas of the versions from `first` up to `version`; the caller gives them to [[releaseDeltas]]. */
  def deltas(version: VersionId, first: Long): DeltaFiles = agent.deltas(version, first)

  /** Gives the files of the deltas back. */
  def releaseDeltas(deltas: DeltaFiles): Unit = agent.release(deltas.directory)

  /** Closes the store after its last transaction. May be called any number of times, from any thread. */
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
      try if (touched) state.close()
      finally if (agent.isOpened) agent.close()
    }
  }

  private def used(body: => OpenTransaction): OpenTransaction = {
    synchronized {
      if (closing) throw new IllegalStateException(s"the provider of $name is closed")
      users += 1
    }
    try body
    catch {
      case e: Throwable =>
        try ended()
        catch { case other: Throwable => e.addSuppressed(other) }
        throw e
    }
  }

  /** Begins in memory, if memory has the version. */
  private def opened(
      named: VersionId, readOnly: Boolean, task: Option[TaskAttempt], startNs: Long): Option[OpenTransaction] =
    for {
      version <- attempts.known(named)
      known <- families.of(version)
      start = attempts.start(version, task, readOnly)
      transaction <- state.tryBegin(version, readOnly)
    } yield OpenTransaction(transaction, start, known, sinceMs(startNs), None)

  private def restore(
      named: VersionId,
      readOnly: Boolean,
      task: Option[TaskAttempt],
      snapshot: Option[VersionId],
      startNs: Long): OpenTransaction = {
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
        OpenTransaction(transaction, start, families.of(start.version).get, sinceMs(startNs), answer)
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

  /** Names the directory if the executor's disk fails: Spark shows the error of a disk without it. */
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
  private lazy val threads: ThreadPoolExecutor = ThreadUtils.newDaemonCachedThreadPool("state-store-later")

  /**
   * Does something in another thread; if none can be started, the caller does it. An OutOfMemoryError, which is what a
   * machine without threads throws, would end the executor.
   */
  def later(work: Runnable, executor: => Executor = threads): Unit = {
    val guarded: Runnable = () => Supervised.guarded("Work in the background failed")(work.run())
    try executor.execute(guarded)
    catch { case _: RejectedExecutionException | _: OutOfMemoryError => guarded.run() }
  }

  def isConflict(e: Throwable): Boolean = e match {
    case refused: AgentException => refused.kind == "conflict"
    case _ => false
  }
}

/** The ids of the versions that an executor makes, and the choice of the one that Spark means. Safe for any thread. */
sealed trait Attempts {
  /** Returns the version that memory may have under this name; None if storage has to resolve the name. */
  def known(version: VersionId): Option[VersionId]

  /** Starts an attempt in memory. May call the agent. */
  def start(version: VersionId, task: Option[TaskAttempt], readOnly: Boolean): AttemptStart

  /** Returns the version that an attempt is about to commit. */
  def next(start: AttemptStart): VersionId

  /** Notes that a version was restored from storage, which had `seen` above it. */
  def restored(version: VersionId, seen: SeenAttempts): Unit = ()

  /** Notes that a version was committed here, after which storage had `seen` above it. */
  def committed(version: VersionId, seen: SeenAttempts): Unit = ()

  /** Notes that the task of a committed version failed: Spark does not take the version. */
  def failed(version: VersionId): Unit = ()

  /** Notes that the commit of a version failed, though its delta may be in storage: Spark does not take the version. */
  def uncertain(version: VersionId): Unit = ()

  /** Notes that a commit was refused: Spark may have taken other versions than memory has. */
  def refused(): Unit = ()

  /** Forgets versions with a lower number: no transaction in memory begins on them any more. */
  def forgetBefore(number: Long): Unit = ()
}

/** Attempts that Spark names by its own ids (checkpoint format 2). */
private[local] final class SparkAttempts extends Attempts {
  override def known(version: VersionId): Option[VersionId] = Some(version)

  override def start(version: VersionId, task: Option[TaskAttempt], readOnly: Boolean): AttemptStart =
    AttemptStart.on(version, task, None)

  override def next(start: AttemptStart): VersionId =
    VersionId(start.version.number + 1, Some(UUID.randomUUID.toString))
}

/**
 * Attempts of versions that Spark names by their numbers alone (checkpoint format 1): ids are made here, as the control
 * plane reads them (state_store/core/checkpoint/lineage.py). A number stands for the version that was committed or
 * restored under it last, unless its task failed.
 *
 * An attempt has to know the attempts in storage at its start, or at an earlier time. The answer to the last commit or
 * restore lists them; the agent is asked again if other executors may have written since.
 */
private[local] final class NumberedAttempts(agent: AgentStore) extends Attempts {
  private var takenVersions = Map.empty[Long, VersionId]
  private var newest: Option[(VersionId, SeenAttempts)] = None
  private var tried = 0L

  override def known(version: VersionId): Option[VersionId] =
    if (version.number == 0 || version.id.isDefined) Some(version) else synchronized(takenVersions.get(version.number))

  override def start(version: VersionId, task: Option[TaskAttempt], readOnly: Boolean): AttemptStart = {
    val seen =
      if (readOnly && task.isEmpty) None
      else Some(upToDate(version, task).getOrElse(agent.attempts(version.number)))
    AttemptStart.on(version, task, seen)
  }

  private def upToDate(version: VersionId, task: Option[TaskAttempt]): Option[SeenAttempts] = synchronized {
    val first = task.exists(!_.again) && version.number + 1 > tried
    newest.collect { case (latest, seen) if first && latest == version => seen }
  }

  override def next(start: AttemptStart): VersionId = {
    val number = start.version.number + 1
    synchronized { tried = math.max(tried, number) }
    val task = start.task.getOrElse(NumberedAttempts.noTask)
    val unique = UUID.randomUUID.toString.take(NumberedAttempts.Digits)
    VersionId(number, Some(s"a${start.seen.fold(0L)(_.ordinal)}-${task.application}-${task.number}-$unique"))
  }

  // A version that a reader requested by one of Spark's ids is not the version that its number stands for.
  override def restored(version: VersionId, seen: SeenAttempts): Unit =
    if (version.id.forall(_.matches(NumberedAttempts.OwnId))) take(version, seen)

  override def committed(version: VersionId, seen: SeenAttempts): Unit = take(version, seen)

  override def failed(version: VersionId): Unit = {
    synchronized { if (takenVersions.get(version.number).contains(version)) takenVersions -= version.number }
    // Spark may have interrupted the thread of the task, which then cannot call the agent.
    LocalStore.later(() => agent.refuse(version))
  }

  override def uncertain(version: VersionId): Unit =
    if (Thread.currentThread.isInterrupted) failed(version) else agent.refuse(version)

  override def refused(): Unit = synchronized {
    takenVersions = Map.empty
    newest = None
  }

  override def forgetBefore(number: Long): Unit = synchronized { takenVersions = takenVersions.filter(_._1 >= number) }

  private def take(version: VersionId, seen: SeenAttempts): Unit = synchronized {
    takenVersions += version.number -> version
    newest = Some(version -> seen)
  }
}

private object NumberedAttempts {
  val OwnId = "a[0-9]+-[0-9a-f]{8}-[0-9]+-[0-9a-f]{8}"
  val Digits = 8
  val noTask: TaskAttempt = TaskAttempt("0" * Digits, 0, again = true)
}

/** The column families of the versions on which transactions can begin without a restore. Safe for any thread. */
private[local] final class KnownFamilies {
  private var families = Map(VersionId.empty -> ColumnFamilies.initial)

  /** Number of known versions, the empty version not counted. */
  def size: Int = synchronized(families.size - 1)

  def of(version: VersionId): Option[ColumnFamilies] = synchronized(families.get(version))

  def add(version: VersionId, added: ColumnFamilies): Unit = synchronized { families += version -> added }

  /** Forgets the versions below a number, but not the empty version: memory begins no transaction on them any more. */
  def forgetBefore(number: Long): Unit = synchronized {
    families = families.filter { case (version, _) => version.number == 0 || version.number >= number }
  }
}

/**
 * The restore for a reader that no writer has counted yet. Spark 4.0 opens a store to read and then once more to write,
 * from memory: the writer, whose commit is reported, counts the restore of the reader. Safe for any thread.
 */
private[local] final class RestoreForReader {
  private val uncounted = new AtomicReference[Option[OpenTransaction]](None)

  /** Keeps the restore of a reader. Returns a writer with the kept restore, if that is of the same version. */
  def counted(opened: OpenTransaction, readOnly: Boolean): OpenTransaction =
    if (readOnly) {
      if (opened.restored.isDefined) uncounted.set(Some(opened.copy(transaction = null)))
      opened
    } else {
      val uncountedRead = uncounted.getAndSet(None)
      uncountedRead.filter(reader => opened.restored.isEmpty && reader.start.version == opened.start.version)
        .fold(opened)(reader => opened.copy(loadMs = reader.loadMs + opened.loadMs, restored = reader.restored))
    }

  /** Forgets the restore: the reader itself became a writer, and counts it. */
  def forget(): Unit = uncounted.set(None)
}

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
 * @param published called with each version whose snapshot is in checkpoint storage, in a thread of its own: it may wait
 *     for the driver, and fail
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
    ages.later(TimeUnit.NANOSECONDS.toMillis(System.nanoTime - agesAtNs))
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
    offer(made)
    if (made.kind != Declarations.ingestMerge) LocalStore.later(() => published(made.version.number))
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
