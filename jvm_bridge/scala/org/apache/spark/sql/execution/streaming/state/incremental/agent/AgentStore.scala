package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.nio.file.Path
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.{AtomicLong, LongAdder}

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.hadoop.conf.Configuration

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.{StateStoreConf, StateStoreId}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{Json, VersionId}
import org.apache.spark.sql.execution.streaming.state.incremental.settings.{Declarations, OptionTexts}

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
  // Resolved once, by the first task: all file requests act for the user of that task.
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
    held.add(answer.directory)
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
    val expected = told.awaitedBut(AgentStore.MostUntold).before(delta)
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
    for (version <- UnwrittenRefusals.of(key); _ <- bestEffort("refuse", versioned(version): _*))
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
    val answer = bestEffort("close")
    agent.unregister(instance, owed = answer.filter(_.path("owed").asBoolean).map(_ => request("close")))
  }

  private def handle(event: AgentEvent): Unit = {
    event match {
      case ended: MergeEnded =>
        held.add(ended.merged.directory)
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
      option: String = "callTimeout"): ObjectNode =
    agent.call(
      () => request(op, arguments: _*), timeoutMs(opened.limits), settings, AgentStore.Prefix + option)

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
  private val MostUntold = 8
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
