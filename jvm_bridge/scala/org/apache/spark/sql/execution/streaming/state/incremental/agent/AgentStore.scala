package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.nio.file.{Path, Paths}

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.hadoop.conf.Configuration

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{Json, VersionId}
import org.apache.spark.sql.execution.streaming.state.incremental.settings.{Declarations, OptionTexts}
import org.apache.spark.sql.execution.streaming.state.{StateStoreConf, StateStoreId}

/** What the agent answers to `open`. */
final case class OpenedStore(incoming: Path, memoryBudgetBytes: Long, options: JsonNode) {
  def number(option: String): Long = {
    val value = options.path(option)
    if (value.isNumber) value.asLong
    else throw new AgentException("internal",
      s"the agent's answer to open has no option $option; is it of another version?")
  }
}

/**
 * One store's calls to the agent, as docs/protocol.md lists them. Safe for any thread. Nothing is called
 * before it is needed; every call throws AgentException.
 */
final class AgentStore(id: StateStoreId, runId: String, conf: StateStoreConf, hadoopConf: Configuration)
  extends Logging {
  private val texts: Map[String, String] = conf.sqlConfs.collect {
    case (key, value) if key.startsWith(AgentStore.Prefix) => key.stripPrefix(AgentStore.Prefix) -> value
  }
  private val agent = Agent.of(Interpreter.choose(texts.get("agentPython")))
  private val settings = AgentSettings(new OptionTexts(texts.get).text("logLevel"), startTimeoutMs)
  // The location is resolved once, by the first task: its user is the one that all file calls act for.
  private lazy val location = {
    val path = id.storeCheckpointLocation()
    path.getFileSystem(hadoopConf).makeQualified(path)
  }
  private lazy val files = new FileCalls(location, hadoopConf)
  private lazy val store: ObjectNode = Json.obj(
    "location" -> location.toString, "operator" -> id.operatorId, "partition" -> id.partitionId,
    "name" -> id.storeName, "run" -> runId, "ids" -> conf.enableStateStoreCheckpointIds,
    "retain" -> conf.minVersionsToRetain, "options" -> texts)

  @volatile private var wasOpened = false

  /** The first call; checks the options. */
  lazy val opened: OpenedStore = {
    val answer = agent.call(request("open"), AgentStore.OpenTimeoutMs, settings, files.answer)
    wasOpened = true
    OpenedStore(Paths.get(answer.path("incoming").asText), answer.path("memory_budget_bytes").asLong,
      answer.path("options"))
  }

  def restore(at: VersionId, from: Option[VersionId]): ObjectNode =
    call("restore", versioned(at) ++
      from.toSeq.flatMap(one => Seq("from_version" -> one.version, "from_id" -> one.id)))

  def commit(
      as: VersionId, parent: Option[String], delta: Path, bytes: Long, crc: Long, keys: Long): ObjectNode =
    call("commit", versioned(as) ++ Seq("parent" -> parent, "path" -> delta.toString, "bytes" -> bytes,
      "crc" -> crc, "keys" -> keys))

  def merge(at: VersionId, kind: String, reason: String): ObjectNode =
    agent.call(request("merge", versioned(at) ++ Seq("kind" -> kind, "reason" -> reason): _*),
      opened.number("mergeTimeout") + AgentStore.MergeGraceMs, settings, files.answer)

  def cleanup(newest: VersionId): ObjectNode = call("cleanup", versioned(newest))

  /** Local files of the deltas `first`..`to`, oldest first. */
  def deltas(to: VersionId, first: Long): Seq[(Long, Path)] =
    call("deltas", versioned(to) :+ ("first" -> first)).path("files").elements.asScala
      .map(file => file.path("version").asLong -> Paths.get(file.path("path").asText)).toSeq

  def status(): ObjectNode = call("status", Nil)

  /** Tells the agent that a directory is of no use any more. Never throws; nothing is started for it. */
  def release(directory: String): Unit = courtesy("release", "directory" -> directory)

  /** Tells the agent that the provider is closed. Never throws; nothing is started for it. */
  def close(): Unit = courtesy("close")

  private def call(op: String, arguments: Seq[(String, Any)]): ObjectNode =
    agent.call(request(op, arguments: _*), opened.number("callTimeout"), settings, files.answer)

  private def courtesy(op: String, arguments: (String, Any)*): Unit =
    try if (wasOpened) agent.tell(request(op, arguments: _*), AgentStore.CourtesyTimeoutMs)
    catch { case NonFatal(e) => logWarning(s"The agent was not told to $op $id: ${e.getMessage}") }

  private def request(op: String, arguments: (String, Any)*): ObjectNode =
    Json.obj(Seq("op" -> op, "store" -> store) ++ arguments: _*)

  private def versioned(at: VersionId): Seq[(String, Any)] = Seq("version" -> at.version, "id" -> at.id)

  private def startTimeoutMs: Long =
    try new OptionTexts(texts.get).durationMs("agentStartTimeout")
    catch { // the agent's `open` will name the option
      case _: IllegalArgumentException => new OptionTexts(_ => None).durationMs("agentStartTimeout")
    }
}

object AgentStore {
  val Prefix: String = Declarations.prefix
  private val OpenTimeoutMs = 120000L
  private val CourtesyTimeoutMs = 10000L
  // The agent itself gives up at mergeTimeout, and says why.
  private val MergeGraceMs = 30000L
}
