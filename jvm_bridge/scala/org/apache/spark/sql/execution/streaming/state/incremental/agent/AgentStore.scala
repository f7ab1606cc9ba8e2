package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.nio.file.Path
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicLong

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.hadoop.conf.Configuration

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.{StateStoreConf, StateStoreId}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{Json, VersionId}
import org.apache.spark.sql.execution.streaming.state.incremental.settings.{Declarations, OptionTexts}

/**
 * One store's calls to the agent, as docs/protocol.md lists them. Safe for any thread. Nothing is called
 * before it is needed; every call throws AgentException.
 *
 * Directories that answers and events name are this JVM's until they are released.
 */
final class AgentStore(id: StateStoreId, runId: String, conf: StateStoreConf, hadoopConf: Configuration)
  extends Logging {
  private val instance = AgentStore.instances.incrementAndGet()
  private val texts: Map[String, String] = conf.sqlConfs.collect {
    case (key, value) if key.startsWith(AgentStore.Prefix) => key.stripPrefix(AgentStore.Prefix) -> value
  }
  private val agent = Agent.of(Interpreter.choose(texts.get("agentPython")))
  private val settings = AgentSettings(new OptionTexts(texts.get).text("logLevel"), durationMs("agentStartTimeout"))
  // The location is resolved once, by the first task: its user is the one that all file requests act for.
  private lazy val location = {
    val path = id.storeCheckpointLocation()
    path.getFileSystem(hadoopConf).makeQualified(path)
  }
  private lazy val files = new FileCalls(location, hadoopConf)
  private val held = ConcurrentHashMap.newKeySet[String]

  @volatile private var listener: AgentEvent => Unit = _ => ()
  @volatile private var wasOpened = false

  /** Who is told of the store's merges; set before the first call. */
  def listen(to: AgentEvent => Unit): Unit = listener = to

  /** The first call; checks the options. */
  lazy val opened: OpenAnswer = {
    agent.register(instance, files, hear)
    wasOpened = true
    val answer = Answers.open(agent.call(
      () => request("open"), durationMs("callTimeout"), settings, AgentStore.Prefix + "callTimeout"))
    agent.lend(answer.fileConnections)
    answer
  }

  /** How often the agent of this JVM was started again, since the JVM began. */
  def agentRestarts: Long = agent.restarts

  /** Whether anything was asked of the agent, so that there is something to close. */
  def isOpened: Boolean = wasOpened

  /**
   * @param snapshot exactly the snapshot of that version is to be used
   * @param thorough whether every file is to be verified as a whole
   * @param ingest whether the deltas have to be part of the database
   */
  def restore(version: VersionId, snapshot: Option[VersionId], thorough: Boolean, ingest: Boolean): RestoreAnswer = {
    val answer = Answers.restore(call("restore", versioned(version) ++
      Seq("thorough" -> thorough, "ingest" -> ingest) ++
      snapshot.toSeq.flatMap(one => Seq("from_version" -> one.number, "from_id" -> one.id))))
    held.add(answer.directory)
    answer
  }

  /** Brings bytes of a file in a base's directory to their place there. */
  def fetch(directory: String, name: String, offset: Long, length: Long): Unit =
    call("range", Seq("directory" -> directory, "name" -> name, "offset" -> offset, "length" -> length))

  /** What storage has above that version; for an attempt that starts on it without Spark's ids. */
  def attempts(above: Long): SeenAttempts = Answers.seen(call("attempts", Seq("version" -> above)))

  /**
   * @param parent what the delta names as its parent
   * @param seen what storage had above the version before when the attempt started, without Spark's ids
   * @param memoryShort whether a merge that gives memory back is wanted
   */
  def commit(
      version: VersionId,
      parent: String,
      seen: Option[SeenAttempts],
      delta: Path,
      bytes: Long,
      crc: Long,
      keys: Long,
      memoryShort: Boolean): CommitAnswer =
    Answers.commit(call("commit", versioned(version) ++ Seq("parent" -> parent,
      "seen" -> seen.map(one => Json.ofVersions(one.attempts)), "path" -> delta.toString, "bytes" -> bytes, "crc" -> crc,
      "keys" -> keys, "memory_short" -> memoryShort)))

  /** Makes a snapshot of that version now, which becomes an event, too; else the answer is why none was made. */
  def snapshot(version: VersionId, reason: String): Option[String] =
    Answers.skipped(call("snapshot", versioned(version) :+ ("reason" -> reason),
      _.mergeTimeoutMs + AgentStore.GraceMs, "mergeTimeout"))

  /**
   * Puts a full checkpoint into the agent's queue of merges; the event of that merge tells how it ended.
   *
   * @param version number of the version, which Spark has committed
   * @param id      its id; None if the caller knows the number alone
   * @param reason  who asks, for people
   * @return the version that is meant, and whether its snapshot is a full one already
   */
  def full(version: Long, id: Option[String], reason: String): FullAnswer =
    Answers.full(call("full", Seq("version" -> version, "id" -> id, "reason" -> reason)))

  def cleanup(newest: VersionId): CleanupAnswer =
    Answers.cleanup(
      call("cleanup", versioned(newest), _.cleanupTimeoutMs + AgentStore.GraceMs, "cleanupTimeout"))

  /** Local files of the deltas from version `first` up to that one. */
  def deltas(version: VersionId, first: Long): DeltaFiles = {
    val answer = Answers.deltas(call("deltas", versioned(version) :+ ("first" -> first)))
    held.add(answer.directory)
    answer
  }

  /** Tells the agent that the task that had committed that version failed, which Spark's ids would tell. Never
   * throws; where it is not heard, the next attempt counts more all the same. */
  def refuse(version: VersionId): Unit = bestEffort("refuse", versioned(version): _*)

  /** Tells the agent that a base has a damaged block. Never throws. */
  def foundDamage(directory: String): Unit = bestEffort("damaged", "directory" -> directory)

  /** Tells the agent that a directory is of no use any more. Never throws; nothing is started for it. */
  def release(directory: String): Unit = {
    held.remove(directory)
    bestEffort("release", "directory" -> directory)
  }

  /** Tells the agent that the provider is closed. Never throws; nothing is started for it. */
  def close(): Unit = {
    val answer = bestEffort("close")
    agent.unregister(instance, owed = answer.exists(_.path("owed").asBoolean))
  }

  private def hear(event: AgentEvent): Unit = {
    event match {
      case MergeEnded(_, merged, _, _) => held.add(merged.directory)
      case _ => ()
    }
    listener(event)
  }

  private def call(
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
        logWarning(s"The agent was not told to $op $id: ${e.getMessage}")
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

  /** An option as it is set; its default if that cannot be read: the agent's `open` names it then. */
  private def durationMs(option: String): Long =
    try new OptionTexts(texts.get).durationMs(option)
    catch { case _: IllegalArgumentException => new OptionTexts(_ => None).durationMs(option) }
}

object AgentStore {
  val Prefix: String = Declarations.prefix
  private val BestEffortTimeoutMs = 10000L
  // The agent itself gives up at the option's time, between two files, and says why.
  private val GraceMs = 60000L
  private val instances = new AtomicLong
}
