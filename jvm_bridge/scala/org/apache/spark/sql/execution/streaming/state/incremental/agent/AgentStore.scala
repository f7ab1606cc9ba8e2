package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.IOException
import java.nio.ByteBuffer
import java.nio.channels.{ClosedByInterruptException, FileChannel}
import java.nio.file.{Files, Path, Paths, StandardOpenOption}
import java.util.{ArrayDeque, Locale}
import java.util.concurrent.{ConcurrentHashMap, TimeUnit}
import java.util.concurrent.atomic.{AtomicLong, LongAdder}
import java.util.zip.CRC32

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.hadoop.conf.Configuration

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.{StateStoreConf, StateStoreId}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{Json, MissingFieldException, VersionId}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json.Fields
import org.apache.spark.sql.execution.streaming.state.incremental.settings.{Declarations, OptionTexts}

// A store's calls to the agent: the answers and events of docs/protocol.md as types, then the calls, then how answers
// are read. A commit to a directory of this machine is stored here, and the agent hears of it afterwards.

/**
 * Answer to `open`.
 *
 * @param incoming directory for new deltas
 * @param deltaDirectory directory of checkpoint storage in which this JVM may store deltas itself; None: it may not
 * @param memoryBudgetBytes share of the data plane in the memory that the option allows
 * @param fileConnections number of connections that the agent wants for file requests; 0 if it needs none
 */
private[agent] final case class OpenAnswer(
    incoming: Path,
    deltaDirectory: Option[Path],
    memoryBudgetBytes: Long,
    fileConnections: Int,
    limits: AgentLimits)

/**
 * The options that the JVM reads, in milliseconds; `tolerableFailedMerges` is -1 for any number,
 * `verificationBytesPerS` is 0 if nothing is verified in the background.
 */
final case class AgentLimits(
    callTimeoutMs: Long,
    mergeTimeoutMs: Long,
    cleanupTimeoutMs: Long,
    tolerableFailedMerges: Int,
    verificationBytesPerS: Long)

/** Milliseconds since the newest snapshot, and since the newest full snapshot; None if there is none. */
final case class SnapshotAges(sinceSnapshotMs: Option[Long], sinceFullMs: Option[Long]) {
  /** Returns the ages of the same snapshots after more time. */
  def later(elapsedMs: Long): SnapshotAges =
    SnapshotAges(sinceSnapshotMs.map(_ + elapsedMs), sinceFullMs.map(_ + elapsedMs))
}

/**
 * Attempts in storage above a version, without Spark's ids.
 *
 * @param ordinal the ordinal of an attempt that starts on the version now
 * @param attempts the attempts in storage; the commit of that attempt gives them back to the agent
 */
final case class SeenAttempts(ordinal: Long, attempts: Seq[VersionId])

/**
 * A base that the agent has made: a database in `directory`, and deltas after it.
 *
 * @param database the version of the database, which has `keys` keys; if its number is 0, there is no database
 * @param looseDeltas version and local file of the deltas after the base that are not in it, oldest first
 * @param sparse paths, below the directory, of the files of which parts are missing
 * @param pageBytes length of the pages of those files that may be evicted at any moment; 0: what was fetched stays
 * @param pagesAtOnce bytes of such pages that a call may bring, so that they stay until they are read
 * @param stored paths of such files in storage, by their path below the directory
 */
final case class OfferedBase(
    directory: String,
    database: VersionId,
    keys: Long,
    looseDeltas: Seq[(VersionId, String)],
    sparse: Set[String],
    pageBytes: Int,
    pagesAtOnce: Long,
    stored: Map[String, String])

/**
 * Answer to `restore`: a base to open, and the cost of making it.
 *
 * @param id the id of the version, if it has one
 */
final case class RestoreAnswer(
    id: Option[String],
    seen: SeenAttempts,
    base: OfferedBase,
    files: Long,
    deltas: Long,
    localFiles: Long,
    fetchedFiles: Long,
    fetchedBytes: Long,
    predictedMs: Long,
    phases: RestorePhases,
    ages: SnapshotAges,
    warnings: Seq[String]) {
  override def toString: String =
    s"$files files, of which $localFiles were local, $fetchedFiles were fetched ($fetchedBytes bytes) and " +
      s"${base.sparse.size} are fetched as they are read; $deltas deltas; $phases, $predictedMs ms predicted; " +
      base.directory
}

/** Duration of each phase of a restore, in milliseconds. */
final case class RestorePhases(chooseMs: Long, fetchMs: Long, verifyMs: Long)

/**
 * Sizes of the chain that the newest version depends on.
 *
 * @param sharedFiles  number of files of the snapshot that older versions wrote
 * @param snapshotKind `incremental` or `full`; None, like its version, if there is no snapshot
 */
final case class ChainSizes(
    deltas: Long,
    deltasSinceFull: Long,
    mergesSinceFull: Long,
    files: Long,
    bytes: Long,
    sharedFiles: Long,
    sharedBytes: Long,
    snapshotVersion: Option[Long],
    snapshotKind: Option[String],
    fullVersion: Option[Long])

/**
 * Answer to `commit`.
 *
 * @param predictedRestoreMs predicted duration of a restore of the version, without local files
 * @param restoreObjectiveMs the option of that name; 0 if there is no objective
 */
final case class CommitAnswer(
    chain: ChainSizes,
    predictedRestoreMs: Long,
    restoreObjectiveMs: Long,
    ages: SnapshotAges,
    seen: SeenAttempts,
    hydration: HydrationCounters) {

  /**
   * Returns the answer for the next version, unless a merge changes the chain before.
   *
   * @param deltaBytes length of the delta of that version
   * @param elapsedMs  how long ago this answer was given
   */
  def next(deltaBytes: Long, elapsedMs: Long): CommitAnswer = copy(
    chain = chain.copy(deltas = chain.deltas + 1, deltasSinceFull = chain.deltasSinceFull + 1, files = chain.files + 1,
      bytes = chain.bytes + deltaBytes),
    ages = ages.later(elapsedMs))
}

/** Bytes of lazily restored files: read on demand, fetched in the background, and still missing. */
final case class HydrationCounters(onDemandBytes: Long, hydratedBytes: Long, leftBytes: Long)

/**
 * The result of a merge: a base to open, and for a snapshot its files.
 *
 * @param kind `ingest` (nothing was published), `incremental` or `full`
 * @param newBytes bytes of the files that `version` needs and no older version does, of its snapshot
 * @param newBytesBefore the same before the merge: of its delta, or of an older snapshot
 * @param chain the chain after the merge, of the newest version that the agent had heard of
 */
final case class MergedStore(
    kind: String,
    reason: String,
    version: VersionId,
    base: OfferedBase,
    tookMs: Long,
    uploadedBytes: Long,
    sharedFiles: Long,
    newFiles: Long,
    ownFiles: Long,
    newBytes: Long,
    newBytesBefore: Long,
    chain: ChainSizes)

/**
 * Answer to `full`.
 *
 * @param version the version of the checkpoint, which may be later than the requested version
 * @param already true if that version has a full snapshot, so that no merge is needed
 */
final case class FullAnswer(version: VersionId, already: Boolean)

/**
 * A merge that runs or waits, in the answer to `status`.
 *
 * @param runsMs how long it has run, in milliseconds; None if it waits
 * @param why    the reason for which it waits
 */
final case class CurrentMerge(
    run: String,
    operator: Long,
    partition: Int,
    store: String,
    version: Long,
    kind: String,
    reason: String,
    runsMs: Option[Long],
    why: Option[String])

/** Answer to `cleanup`. */
private[agent] final case class CleanupAnswer(deletedFiles: Long, deletedBytes: Long)

/** Answer to `deltas`: version and local file of each, oldest first, in a directory that the caller releases. */
final case class DeltaFiles(directory: String, files: Seq[(Long, Path)])

/** An event of a store, which the agent reports by itself. */
private[agent] sealed trait AgentEvent {
  def store: Long
}

/** The agent no longer needs the files of a store whose provider was closed before. */
private[agent] final case class StoreClosed(store: Long) extends AgentEvent

/** A merge succeeded. The predicted duration of a restore is that of the chain after it. */
final case class MergeEnded(
    store: Long,
    merged: MergedStore,
    ages: SnapshotAges,
    predictedRestoreMs: Long,
    failuresInRow: Int)
    extends AgentEvent

/** A failed merge, the `failuresInRow`-th in a row. */
final case class MergeFailed(
    store: Long,
    version: Long,
    kind: String,
    reason: String,
    error: AgentException,
    failuresInRow: Int)
    extends AgentEvent

/**
 * A delta of this executor that becomes a version.
 *
 * @param parent the parent that the delta names
 * @param seen the attempts in storage when this attempt started; None with Spark's ids
 * @param memoryShort true to ask for a merge that gives memory back
 */
final case class NewDelta(
    version: VersionId,
    parent: String,
    seen: Option[SeenAttempts],
    path: Path,
    bytes: Long,
    crc: Long,
    keys: Long,
    memoryShort: Boolean) {

  /** The name in checkpoint storage, as docs/format.md has it. */
  def name: String = "%020d_%s_%s_%08x.sst".formatLocal(Locale.ROOT, version.number, version.id.get, parent, crc)
}

/**
 * The calls of one store to the agent, as docs/protocol.md lists them. Safe for any thread. The agent is not called
 * before it is needed; every call throws AgentException.
 *
 * This JVM owns the directories that answers and events name until it releases them.
 */
final class AgentStore(id: StateStoreId, runId: String, conf: StateStoreConf, hadoopConf: Configuration)
    extends Logging {
  private val instance = AgentStore.instances.incrementAndGet()
  private val texts: Map[String, String] = conf.sqlConfs.collect {
    case (key, value) if key.startsWith(AgentStore.Prefix) => key.stripPrefix(AgentStore.Prefix) -> value
  }
  private val agent = Agent.of(Interpreter.choose(texts.get("agentPython")))
  private val settings = AgentSettings(new OptionTexts(texts.get).text("logLevel"), durationMs("agentStartTimeout"))
  // Made once, by the task that opens the store: all file requests act for the user of that task.
  private lazy val location = {
    val path = id.storeCheckpointLocation()
    path.getFileSystem(hadoopConf).makeQualified(path)
  }
  private lazy val files = new FileCalls(location, hadoopConf)
  private lazy val key = s"$location/${id.operatorId}/${id.partitionId}/${id.storeName}"
  private val bytesRead = new LongAdder
  private val told = new ToldCommits(id.toString)
  private lazy val deltaLinks = opened.deltaDirectory.map(new DeltaLinks(_))
  private val held = ConcurrentHashMap.newKeySet[String]

  @volatile private var listener: AgentEvent => Unit = _ => ()
  @volatile private var wasOpened = false

  /** True from the call `close` on: a call after it would open the store again in an agent that has been replaced. */
  @volatile private var isClosed = false

  /** Sets the listener for the store's merges. Call it before the first call. */
  def listen(to: AgentEvent => Unit): Unit = listener = to

  /** The answer to the first call, which checks the options. */
  lazy val opened: OpenAnswer = {
    agent.register(instance, files, handle)
    wasOpened = true
    val answer = Answers.open(agent.call(
      () => request("open"), durationMs("callTimeout"), settings, AgentStore.Prefix + "callTimeout"))
    agent.lend(answer.fileConnections)
    answer
  }

  /** Returns how often the agent of this JVM was started again, since the JVM began. */
  def agentRestarts: Long = agent.restarts

  /** Returns true if the agent has been called, so that there is something to close. */
  def isOpened: Boolean = wasOpened

  /**
   * Asks for a base of a version.
   *
   * @param snapshot the version whose snapshot the agent has to use; None: the agent chooses
   * @param thorough true to verify every file as a whole
   */
  def restore(version: VersionId, snapshot: Option[VersionId], thorough: Boolean): RestoreAnswer = {
    val answer = Answers.restore(call("restore",
      versioned(version) ++
        Seq("thorough" -> thorough) ++
        snapshot.toSeq.flatMap(base => Seq("from_version" -> base.number, "from_id" -> base.id))))
    held.add(answer.base.directory)
    answer
  }

  /**
   * Fetches ranges of files in storage, and writes them at the same offsets of the local files of a base: name, offset
   * and length of each.
   */
  def fetch(directory: String, ranges: Seq[(String, Long, Long)]): Unit =
    callNow("ranges",
      Seq("directory" -> directory,
        "ranges" -> Json.array(ranges.map { case (name, offset, length) => Json.array(Seq(name, offset, length)) })))

  /**
   * Returns a reader of ranges of files in storage into memory, without the agent: path in storage, offset and length of
   * each. The caller closes it.
   */
  def rangeReads(): RangeReads = files.rangeReads()

  /** Counts bytes that such a reader has read. */
  def noteRead(bytes: Long): Unit = bytesRead.add(bytes)

  /** Returns the attempts in storage above a version, for an attempt that starts on it without Spark's ids. */
  def attempts(above: Long): SeenAttempts = Answers.seen(call("attempts", Seq("version" -> above)))

  /**
   * Makes a delta the next version, which is durable in checkpoint storage on return. If this JVM can store the delta
   * itself, the agent hears of it afterwards, and the answer is that of the version before, brought up to date.
   *
   * @param later runs what does not have to be done on return
   */
  def commit(delta: NewDelta, later: (() => Unit) => Unit): CommitAnswer = {
    val arguments = versioned(delta.version) ++ Seq("parent" -> delta.parent,
      "seen" -> delta.seen.map(s => Json.ofVersions(s.attempts)), "path" -> delta.path.toString,
      "bytes" -> delta.bytes, "crc" -> delta.crc, "keys" -> delta.keys, "memory_short" -> delta.memoryShort)
    val expected = told.awaitedBut(AgentStore.MaxUntold).before(delta)
    val answer = expected.filter(_ => deltaLinks.exists(_.store(delta))) match {
      case Some(next) =>
        told.tell(delta, next, later)(Answers.commit(callNow("commit", arguments :+ ("stored" -> true))))
        next
      case None => told.awaited().answered(delta.version)(Answers.commit(call("commit", arguments)))
    }
    val hydration = answer.hydration
    answer.copy(hydration = hydration.copy(onDemandBytes = hydration.onDemandBytes + bytesRead.sum))
  }

  /** Makes a snapshot of a version now. Its merge is an event, too. Returns the reason if none was made. */
  def snapshot(version: VersionId, reason: String): Option[String] =
    Answers.skipped(call("snapshot", versioned(version) :+ ("reason" -> reason),
      _.mergeTimeoutMs + AgentStore.GraceMs, "mergeTimeout"))

  /**
   * Puts a full checkpoint into the agent's queue of merges; the event of that merge reports its end.
   *
   * @param version number of the version, which Spark has committed
   * @param id      its id; None if the caller knows the number alone
   * @param reason  who asks, for people
   * @return the version of the checkpoint, which may have a full snapshot already
   */
  def full(version: Long, id: Option[String], reason: String): FullAnswer =
    Answers.full(call("full", Seq("version" -> version, "id" -> id, "reason" -> reason)))

  /** Deletes what no retained version needs; `newest` is the version that Spark has committed last. */
  def cleanup(newest: VersionId): CleanupAnswer =
    Answers.cleanup(
      call("cleanup", versioned(newest), _.cleanupTimeoutMs + AgentStore.GraceMs, "cleanupTimeout"))

  /** Fetches the deltas from version `first` up to `version` into local files. */
  def deltas(version: VersionId, first: Long): DeltaFiles = {
    val answer = Answers.deltas(call("deltas", versioned(version) :+ ("first" -> first)))
    held.add(answer.directory)
    answer
  }

  /**
   * Refuses an attempt whose task failed, which Spark's ids would show. Never throws: a refusal that does not come to
   * storage is repeated before the next call that depends on the attempts there, and that call fails if it still cannot
   * be written. If this JVM ends before, the next attempt wins all the same because its ordinal is higher.
   */
  def refuse(version: VersionId): Unit = {
    UnwrittenRefusals.add(key, version)
    tryUnwrittenRefusals()
  }

  private def tryUnwrittenRefusals(): Unit =
    if (!isClosed) for (version <- UnwrittenRefusals.of(key); _ <- bestEffort("refuse", versioned(version): _*))
      UnwrittenRefusals.remove(key, version)

  private def writeUnwrittenRefusals(): Unit = for (version <- UnwrittenRefusals.of(key)) {
    callNow("refuse", versioned(version))
    UnwrittenRefusals.remove(key, version)
  }

  /** Reports that a base has a damaged block. Never throws. */
  def foundDamage(directory: String): Unit = bestEffort("damaged", "directory" -> directory)

  /** Gives a directory back to the agent. Never throws, and starts no agent. */
  def release(directory: String): Unit = {
    held.remove(directory)
    bestEffort("release", "directory" -> directory)
  }

  /** Reports that the provider is closed. Never throws, and starts no agent. */
  def close(): Unit = {
    told.awaitFor(AgentStore.BestEffortTimeoutMs)
    tryUnwrittenRefusals()
    isClosed = true
    val answer = bestEffort("close")
    agent.unregister(instance, owed = answer.filter(_.path("owed").asBoolean).map(_ => request("close")))
  }

  private def handle(event: AgentEvent): Unit = {
    event match {
      case ended: MergeEnded =>
        held.add(ended.merged.base.directory)
        told.merged(ended)
      case _ => ()
    }
    listener(event)
  }

  private def call(
      op: String,
      arguments: Seq[(String, Any)],
      timeoutMs: AgentLimits => Long = _.callTimeoutMs,
      option: String = "callTimeout"): ObjectNode = {
    told.awaited()
    writeUnwrittenRefusals()
    callNow(op, arguments, timeoutMs, option)
  }

  private def callNow(
      op: String,
      arguments: Seq[(String, Any)],
      timeoutMs: AgentLimits => Long = _.callTimeoutMs,
      option: String = "callTimeout"): ObjectNode = {
    if (isClosed) throw new AgentException("busy", s"$id is closed")
    agent.call(
      () => request(op, arguments: _*), timeoutMs(opened.limits), settings, AgentStore.Prefix + option)
  }

  private def bestEffort(op: String, arguments: (String, Any)*): Option[ObjectNode] =
    try {
      if (wasOpened) agent.tell(request(op, arguments: _*), AgentStore.BestEffortTimeoutMs) else None
    } catch {
      case NonFatal(e) =>
        logWarning(s"The agent did not receive '$op' of $id: ${e.getMessage}")
        None
    }

  private def request(op: String, arguments: (String, Any)*): ObjectNode =
    Json.obj(Seq("op" -> op, "store" -> store) ++ arguments: _*)

  private def store: ObjectNode = Json.obj(
    "instance" -> instance, "location" -> location.toString, "operator" -> id.operatorId,
    "partition" -> id.partitionId, "name" -> id.storeName, "run" -> runId,
    "ids" -> conf.enableStateStoreCheckpointIds, "retain" -> conf.minVersionsToRetain, "options" -> texts,
    "held" -> Json.texts(held.asScala))

  private def versioned(version: VersionId): Seq[(String, Any)] = Seq("version" -> version.number, "id" -> version.id)

  /** Returns an option as it is set, or its default if the text is wrong: the agent's `open` then reports the error. */
  private def durationMs(option: String): Long =
    try new OptionTexts(texts.get).durationMs(option)
    catch { case _: IllegalArgumentException => new OptionTexts(_ => None).durationMs(option) }
}

object AgentStore {
  val Prefix: String = Declarations.prefix
  private val BestEffortTimeoutMs = 10000L
  // The agent itself gives up when the option's time is over, between two files, and says why.
  private val GraceMs = 60000L

  /** The most commits of a store of which the agent has not heard when the next begins to be stored. */
  private val MaxUntold = 8
  private val instances = new AtomicLong
}

/**
 * The attempts of each store of this JVM whose refusal is not in storage yet: the task failed, and the agent or storage
 * failed as well. A store that is opened again finds those of its predecessor. Safe for any thread.
 */
private[agent] object UnwrittenRefusals {
  private val byStore = new ConcurrentHashMap[String, Set[VersionId]]

  /** Returns the attempts of a store whose refusal is not in storage yet. */
  def of(store: String): Set[VersionId] = byStore.getOrDefault(store, Set.empty)

  /** Notes that the refusal of an attempt has to come to storage. */
  def add(store: String, attempt: VersionId): Unit = byStore.merge(store, Set(attempt), _ ++ _)

  /** Notes that the refusal of an attempt is in storage. */
  def remove(store: String, attempt: VersionId): Unit =
    byStore.computeIfPresent(store, (_, attempts) => Some(attempts - attempt).filter(_.nonEmpty).orNull)
}

/**
 * Stores deltas in a directory of this machine as the agent does: compares the file with its checksum, syncs it, links
 * it under its name and syncs the directory. For any thread.
 *
 * @param directory the directory in checkpoint storage, which may not exist yet
 */
private[agent] final class DeltaLinks(directory: Path) extends Logging {
  @volatile private var isPossible = true

  /**
   * Stores a delta durably. After a failure the directory is left to the agent, which knows storage without links, and
   * says what to do about an error.
   *
   * @return false if the delta may not be in storage, or not durably: then the agent has to store it
   * @throws AgentException if the disk did not take the bytes of the delta. The system reports that once: the agent
   *   would sync the same file without an error, and take it for durable
   */
  def store(delta: NewDelta): Boolean = isPossible && {
    try {
      storeOrFail(delta)
      true
    } catch {
      case _: ClosedByInterruptException => false // Spark kills the task
      case e @ (_: IOException | _: UnsupportedOperationException) =>
        isPossible = false
        logInfo(s"From now on the agent stores the deltas in $directory, because this JVM could not: $e")
        false
    }
  }

  private def storeOrFail(delta: NewDelta): Unit = {
    val file = FileChannel.open(delta.path, StandardOpenOption.READ)
    try {
      val crc = DeltaLinks.crc32(file)
      if (file.size != delta.bytes || crc != delta.crc) throw new IOException(s"${delta.path} was changed")
      try file.force(true)
      catch {
        case e: IOException if !e.isInstanceOf[ClosedByInterruptException] =>
          throw AgentException.ofLocalDisk(delta.path.toString, e)
      }
    } finally file.close()
    Files.createLink(directory.resolve(delta.name), delta.path)
    val names = FileChannel.open(directory, StandardOpenOption.READ)
    try names.force(true)
    finally names.close()
  }
}

private object DeltaLinks {
  private val BufferBytes = 256 << 10

  private def crc32(file: FileChannel): Long = {
    val crc = new CRC32
    val buffer = ByteBuffer.allocate(math.min(BufferBytes.toLong, math.max(1L, file.size)).toInt)
    while (file.read(buffer) >= 0) {
      buffer.flip()
      crc.update(buffer)
      buffer.clear()
    }
    crc.getValue
  }
}

/**
 * The commits of a store of which the agent hears after they are durable, in their order, and the newest answer about
 * the store. A commit does not wait for the agent's answer about those before, since nothing that the agent answers
 * changes a version that is durable; every other call does. Safe for any thread.
 */
private[agent] final class ToldCommits(store: String) extends Logging {
  private var last: Option[ToldCommits.Last] = None

  /** The commits that the agent has not answered yet, oldest first: it is told of the first now. */
  private val untold = new ArrayDeque[ToldCommits.Untold]

  /** Bytes of the deltas that were stored here since the agent stored one, newest last, as far as they are kept. */
  private var stored = Vector.empty[Long]
  private var merges = 0L

  /** Waits until the agent has answered or failed, for each commit. */
  def awaited(): ToldCommits = awaitedBut(0)

  /** Waits like [[awaited]], but not for that many of the newest commits. */
  def awaitedBut(newest: Int): ToldCommits = synchronized {
    while (untold.size > newest) wait()
    this
  }

  /** Waits like [[awaited]], but not longer than that. Never throws. */
  def awaitFor(ms: Long): Unit = synchronized {
    val endNs = System.nanoTime + TimeUnit.MILLISECONDS.toNanos(ms)
    def leftNs = endNs - System.nanoTime
    try while (!untold.isEmpty && leftNs > 0) TimeUnit.NANOSECONDS.timedWait(this, leftNs)
    catch { case _: InterruptedException => Thread.currentThread.interrupt() }
  }

  /**
   * Returns the answer to expect for a delta; None if the newest version that the agent knows, or hears of next, is not
   * the one that it builds on: then only the agent can say whether the delta may be stored.
   */
  def before(delta: NewDelta): Option[CommitAnswer] = synchronized(last).collect {
    case ToldCommits.Last(version, answer, atNs)
        if version.number + 1 == delta.version.number && version.id.contains(delta.parent) =>
      answer.next(delta.bytes, TimeUnit.NANOSECONDS.toMillis(System.nanoTime - atNs))
  }

  /** Brings the figures of the newest answer up to date: a merge has changed the chain. */
  def merged(event: MergeEnded): Unit = synchronized {
    merges += 1
    last = last.flatMap(_.after(event, stored))
  }

  /** Asks the agent to store a version, and keeps its answer. Call [[awaited]] before. */
  def answered(version: VersionId)(ask: => CommitAnswer): CommitAnswer = {
    val before = synchronized {
      last = None
      stored = Vector.empty
      merges
    }
    val answer = ask
    synchronized { if (merges == before) last = Some(ToldCommits.Last(version, answer, System.nanoTime)) }
    answer
  }

  /**
   * Tells the agent of a delta that is durable already, after those before. If that fails, the agent stores the next.
   *
   * @param expected the answer that [[before]] has returned
   */
  def tell(delta: NewDelta, expected: CommitAnswer, later: (() => Unit) => Unit)(ask: => CommitAnswer): Unit = {
    val isFirst = synchronized {
      last = Some(ToldCommits.Last(delta.version, expected, System.nanoTime))
      stored = (stored :+ delta.bytes).takeRight(ToldCommits.Kept)
      untold.add(ToldCommits.Untold(delta.version, () => ask))
      untold.size == 1
    }
    if (isFirst) later(() => tellAll())
  }

  private def tellAll(): Unit =
    try while (tellFirst(synchronized(untold.peek()))) ()
    catch {
      case e: Throwable => // the agent reads the storage at the next commit
        synchronized {
          last = None
          untold.clear()
          notifyAll()
        }
        throw e
    }

  /** Tells the agent of the first untold commit; returns true if there are others. */
  private def tellFirst(commit: ToldCommits.Untold): Boolean = {
    val before = synchronized(merges)
    val answer =
      try Some(commit.ask())
      catch {
        case NonFatal(e) =>
          logInfo(s"The agent did not hear of version ${commit.version.number} of $store, which is durable. It " +
            s"reads the storage at the next commit, and stores the next delta: ${e.getMessage}")
          None
      }
    synchronized {
      if (answer.isEmpty) last = None
      else if (untold.size == 1 && merges == before) {
        last = answer.map(ToldCommits.Last(commit.version, _, System.nanoTime))
      }
      untold.poll()
      notifyAll()
      !untold.isEmpty
    }
  }
}

private object ToldCommits {
  /** The most versions after a merge whose deltas can be added to the figures of its chain. */
  private val Kept = 64

  /** A commit of which the agent has to hear. */
  private final case class Untold(version: VersionId, ask: () => CommitAnswer)

  /** The newest version, the answer about it, and the time at which that came. */
  private final case class Last(version: VersionId, answer: CommitAnswer, atNs: Long) {

    /**
     * Returns the answer with the chain after a merge; None if its figures cannot be told. The chain of the event ends
     * at the version that the agent had heard of by then.
     *
     * @param stored bytes of the newest deltas, newest last
     */
    def after(event: MergeEnded, stored: Vector[Long]): Option[Last] = {
      val chain = event.merged.chain
      chain.snapshotVersion match {
        case snapshot if snapshot == answer.chain.snapshotVersion => Some(this) // of kind `ingest`, or known already
        case None => None
        case Some(snapshot) =>
          val later = version.number - snapshot - chain.deltas
          if (later < 0 || later > stored.size) None
          else {
            val at = answer.copy(chain = chain, predictedRestoreMs = event.predictedRestoreMs, ages = event.ages)
            Some(Last(version, stored.takeRight(later.toInt).foldLeft(at)(_.next(_, 0)), System.nanoTime))
          }
      }
    }
  }
}

/** Reads the agent's answers. Each method throws an AgentException that names a field which the answer does not have. */
private[agent] object Answers {
  def open(ok: JsonNode): OpenAnswer = reading {
    val options = ok.child("options")
    OpenAnswer(
      Paths.get(ok.text("incoming")), ok.ifText("delta_directory").map(Paths.get(_)),
      ok.number("memory_budget_bytes"), ok.number("file_connections").toInt,
      AgentLimits(options.number("callTimeout"), options.number("mergeTimeout"), options.number("cleanupTimeout"),
        options.number("tolerableFailedMerges").toInt, options.number("verificationRateLimit")))
  }

  def restore(ok: JsonNode): RestoreAnswer = reading {
    val phases = ok.child("phases")
    RestoreAnswer(
      id = ok.ifText("id"),
      seen = attempts(ok.child("attempts")),
      base = base(ok),
      files = ok.number("files"),
      deltas = ok.number("deltas"),
      localFiles = ok.number("local_files"),
      fetchedFiles = ok.number("fetched_files"),
      fetchedBytes = ok.number("fetched_bytes"),
      predictedMs = ok.number("predicted_ms"),
      phases = RestorePhases(phases.number("choose_ms"), phases.number("fetch_ms"), phases.number("verify_ms")),
      ages = ages(ok.child("ages")),
      warnings = ok.texts("warnings"))
  }

  def commit(ok: JsonNode): CommitAnswer = reading {
    val hydration = ok.child("hydration")
    CommitAnswer(
      chain(ok.child("chain")),
      ok.number("predicted_restore_ms"), ok.number("restore_objective_ms"), ages(ok.child("ages")),
      attempts(ok.child("attempts")),
      HydrationCounters(hydration.number("on_demand_bytes"), hydration.number("hydrated_bytes"),
        hydration.number("left_bytes")))
  }

  private def chain(node: JsonNode): ChainSizes =
    ChainSizes(node.number("deltas"), node.number("deltas_since_full"), node.number("merges_since_full"),
      node.number("files"), node.number("bytes"), node.number("shared_files"), node.number("shared_bytes"),
      node.ifNumber("snapshot_version"), node.ifText("snapshot_kind"), node.ifNumber("full_version"))

  def seen(ok: JsonNode): SeenAttempts = reading(attempts(ok))

  /** Returns the reason for which `snapshot` made none, if so. */
  def skipped(ok: JsonNode): Option[String] = ok.ifText("skipped")

  def full(ok: JsonNode): FullAnswer = reading(FullAnswer(version(ok), ok.text("state") == "already"))

  def cleanup(ok: JsonNode): CleanupAnswer =
    reading(CleanupAnswer(ok.number("deleted_files"), ok.number("deleted_bytes")))

  def deltas(ok: JsonNode): DeltaFiles = reading {
    DeltaFiles(ok.text("directory"),
      ok.items("files").map(file => file.number("version") -> Paths.get(file.text("path"))))
  }

  /** Returns the merges that run or wait, of all stores that the agent has open. */
  def currentMerges(ok: JsonNode): Seq[CurrentMerge] = reading {
    for {
      store <- ok.items("stores")
      merges = store.child("merges")
      merge <- Option(merges.get("running")).filter(_.isObject).toSeq ++ merges.items("waiting")
    } yield CurrentMerge(
      store.text("run"), store.number("operator"), store.number("partition").toInt, store.text("name"),
      merge.number("version"), merge.text("kind"), merge.text("reason"), merge.ifNumber("elapsed_ms"),
      merge.ifText("why"))
  }

  /** Returns the events with their numbers, oldest first. */
  def events(ok: JsonNode): Seq[(Long, AgentEvent)] =
    reading(ok.items("events").map(node => node.number("number") -> event(node)))

  def error(node: JsonNode): AgentException =
    new AgentException(
      node.ifText("kind").getOrElse("internal"), node.ifText("message").getOrElse("no message"), node.ifText("file"),
      node.ifText("option"))

  private def event(node: JsonNode): AgentEvent = node.text("event") match {
    case "merged" =>
      MergeEnded(node.number("store"), merged(node.child("merged")), ages(node.child("ages")),
        node.number("predicted_restore_ms"), node.number("failures_in_row").toInt)
    case "merge_failed" =>
      MergeFailed(node.number("store"), node.number("version"), node.text("kind"), node.text("reason"),
        error(node.child("error")), node.number("failures_in_row").toInt)
    case "closed" => StoreClosed(node.number("store"))
    case other => throw unexpected(s"an event '$other'")
  }

  private def merged(node: JsonNode): MergedStore =
    MergedStore(
      kind = node.text("kind"),
      reason = node.text("reason"),
      version = version(node.child("base")),
      base = base(node.child("base")),
      tookMs = node.number("took_ms"),
      uploadedBytes = node.number("uploaded_bytes"),
      sharedFiles = node.number("shared_files"),
      newFiles = node.number("new_files"),
      ownFiles = node.number("own_files"),
      newBytes = node.number("new_bytes"),
      newBytesBefore = node.number("new_bytes_before"),
      chain = chain(node.child("chain")))

  private def attempts(node: JsonNode): SeenAttempts = SeenAttempts(node.number("ordinal"), node.versions("seen"))

  private def base(node: JsonNode): OfferedBase =
    OfferedBase(
      directory = node.text("directory"),
      database = version(node.child("base")),
      keys = node.number("keys"),
      looseDeltas = node.items("loose_deltas").map(delta => version(delta) -> delta.text("path")),
      sparse = node.texts("sparse").toSet,
      pageBytes = node.number("page_bytes").toInt,
      pagesAtOnce = node.number("pages_at_once"),
      stored = node.entries("stored").map { case (name, path) => name -> path.asText }.toMap)

  private def version(node: JsonNode): VersionId = VersionId(node.number("version"), node.ifText("id"))

  private def ages(node: JsonNode): SnapshotAges =
    SnapshotAges(node.ifNumber("snapshot_age_ms"), node.ifNumber("full_age_ms"))

  private def reading[T](answer: => T): T =
    try answer
    catch { case e: MissingFieldException => throw unexpected(e.getMessage) }

  private def unexpected(found: String) =
    new AgentException("internal", s"the agent's answer has $found; is it of another version?")
}
