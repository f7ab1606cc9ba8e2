package org.apache.spark.sql.execution.streaming.state.incremental.observed

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, DataInputStream, DataOutputStream}

import scala.collection.mutable

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.execution.streaming.state.incremental.agent.CurrentMerge
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json.Fields

// Messages between the executors and the driver, as types and as texts. They travel as texts, and commits as bytes,
// because an executor reads messages with Spark's own class loader, which does not have the classes of `spark.jars`.

/** Identifies one store of one run of a query. */
final case class StoreKey(run: String, operator: Long, partition: Int, store: String)

/** A column family of a store: a variable of `transformWithState`, or one that Spark keeps for itself. */
private[observed] final case class Variable(name: String, internal: Boolean, keys: Long)

/** An error of an executor: a kind of docs/protocol.md and a message. */
private[observed] final case class Failed(kind: String, message: String)

/** Counts of the merges of a store since its provider was opened. */
private[observed] final case class MergeCounts(merges: Long, fulls: Long, ingests: Long, failures: Long)

/**
 * A restore with which a commit's transaction began.
 *
 * @param lazily       true if files are fetched as they are read
 * @param predictedMs  predicted duration
 */
private[observed] final case class RestoreReport(
    lazily: Boolean, tookMs: Long, predictedMs: Long, files: Long, deltas: Long, fetchedBytes: Long)

/** A message of an executor about one of its stores. */
private[observed] sealed trait Report {
  def key: StoreKey

  /** The time of the event, by the executor's clock, in milliseconds since 1970. */
  def atMs: Long
}

/**
 * A store after a commit, as its executor knows it.
 *
 * @param root           the query's checkpoint directory for state, without the operator
 * @param version        the version that was committed; `id` is its id
 * @param keys           rows of the store, those of internal variables included
 * @param deltaBytes     bytes of the delta
 * @param writeMs        time to sort and write the delta locally
 * @param storeMs        time until the delta was in checkpoint storage
 * @param memoryBytes    memory that the store uses outside the heap
 * @param predictedMs    predicted duration of a restore of this version; None if the agent predicts none
 * @param objectiveMs    the option `restoreObjective`
 * @param failuresInRow  merges that failed since the last success; `lastFailure` is the last of them
 * @param damagedFiles   damage that was found since the provider was opened
 * @param agentRestarts  number of times that the executor's agent was started again since the executor began;
 *                       `agentRestartsBefore` counts those before the provider was opened
 */
private[observed] final case class StoreReport(
    key: StoreKey,
    atMs: Long,
    root: String,
    version: Long,
    id: Option[String],
    keys: Long,
    variables: Seq[Variable],
    deltaBytes: Long,
    writeMs: Long,
    storeMs: Long,
    memoryBytes: Long,
    chainDeltas: Long,
    deltasSinceFull: Long,
    mergesSinceFull: Long,
    chainFiles: Long,
    chainBytes: Long,
    sharedFiles: Long,
    sharedBytes: Long,
    snapshotVersion: Option[Long],
    snapshotKind: Option[String],
    fullVersion: Option[Long],
    sinceSnapshotMs: Option[Long],
    sinceFullMs: Option[Long],
    predictedMs: Option[Long],
    objectiveMs: Option[Long],
    merges: MergeCounts,
    failuresInRow: Int,
    lastFailure: Option[Failed],
    damagedFiles: Long,
    agentRestarts: Long,
    agentRestartsBefore: Long,
    restored: Option[RestoreReport])
    extends Report

/** A report that travels as a text. */
private[observed] sealed trait RareReport extends Report

/**
 * A merge that ended.
 *
 * @param newBytes bytes of the files that its version needs and no older version does, if it published a snapshot
 * @param newBytesBefore the same before the merge
 * @param failure the reason if it failed
 */
private[observed] final case class MergeReport(
    key: StoreKey,
    atMs: Long,
    version: Long,
    kind: String,
    reason: String,
    tookMs: Long,
    uploadedBytes: Long,
    sharedFiles: Long,
    newFiles: Long,
    ownFiles: Long,
    newBytes: Long,
    newBytesBefore: Long,
    failure: Option[Failed])
    extends RareReport

/**
 * The end of a full checkpoint that the driver requested.
 *
 * @param request the driver's id of the request
 * @param version the version whose snapshot is full now; None if the checkpoint failed
 * @param already true if the snapshot was full before the request
 * @param failure the reason if it failed
 */
private[observed] final case class FullReport(
    key: StoreKey,
    atMs: Long,
    request: String,
    version: Option[Long],
    already: Boolean,
    failure: Option[Failed])
    extends RareReport

/**
 * The driver's command to make full checkpoints.
 *
 * @param version number of the version that Spark has committed
 * @param reason  the origin of the request, for people
 */
private[observed] final case class FullCommand(request: String, version: Long, reason: String, stores: Seq[StoreKey])

/** Writes the messages as JSON texts, and reads them. */
private[observed] object Messages {
  /** The longest text of a failure or a reason that a message carries, in characters. */
  private val LongestText = 500

  /** The largest number of merges of an executor that a message carries. */
  private val MaxMerges = 1000

  /** Writes the message with which an executor sends several reports; commits go by [[CommitMessages]]. */
  def reports(executor: String, host: String, reports: Seq[RareReport]): String =
    text(Json.obj("executor" -> executor, "host" -> host, "reports" -> Json.array(reports.map(encode))))

  /** Returns the executor, its host and its reports; leaves reports of unknown types out. */
  def readReports(message: String): (String, String, Seq[RareReport]) = {
    val node = Json.parse(message)
    (node.text("executor"), node.text("host"), node.items("reports").flatMap(decode))
  }

  /** Writes the message with which an executor introduces its endpoint for commands. */
  def hello(executor: String): String = text(Json.obj("hello" -> executor))

  /** Returns the executor that a [[hello]] names. */
  def readHello(message: String): Option[String] = Json.parse(message).ifText("hello")

  /** Writes a command. */
  def command(full: FullCommand): String = text(Json.obj(
    "command" -> "full", "request" -> full.request, "version" -> full.version, "reason" -> full.reason,
    "stores" -> Json.array(full.stores.map(key => Json.obj(of(key): _*)))))

  /** Reads a command; None for a command that this release does not know. */
  def readCommand(message: String): Option[FullCommand] = {
    val node = Json.parse(message)
    if (!node.ifText("command").contains("full")) None
    else Some(FullCommand(
      node.text("request"), node.number("version"), node.text("reason"), node.items("stores").map(key)))
  }

  /** The command that asks an executor for its merges. */
  val askForMerges: String = text(Json.obj("command" -> "merges"))

  /** Returns true if a message is [[askForMerges]]. */
  def asksForMerges(message: String): Boolean = Json.parse(message).ifText("command").contains("merges")

  /** Writes an executor's answer to [[askForMerges]]. */
  def merges(merges: Seq[CurrentMerge]): String =
    text(Json.obj("merges" -> Json.array(merges.take(MaxMerges).map { merge =>
      Json.obj("run" -> merge.run, "operator" -> merge.operator, "partition" -> merge.partition, "store" -> merge.store,
        "version" -> merge.version, "kind" -> merge.kind, "reason" -> brief(merge.reason), "runs_ms" -> merge.runsMs,
        "why" -> merge.why.map(brief))
    })))

  /** Reads the merges of an answer. */
  def readMerges(message: String): Seq[CurrentMerge] =
    Json.parse(message).items("merges").map { node =>
      CurrentMerge(
        node.text("run"), node.number("operator"), node.number("partition").toInt, node.text("store"),
        node.number("version"), node.text("kind"), node.text("reason"), node.ifNumber("runs_ms"), node.ifText("why"))
    }

  /** Cuts a text after [[LongestText]] characters. */
  def brief(text: String): String =
    if (text.length <= LongestText) text else text.take(LongestText - 1) + "…"

  private def of(key: StoreKey): Seq[(String, Any)] =
    Seq("run" -> key.run, "operator" -> key.operator, "partition" -> key.partition, "store" -> key.store)

  private def key(node: JsonNode): StoreKey =
    StoreKey(node.text("run"), node.number("operator"), node.number("partition").toInt, node.text("store"))

  private def encode(report: RareReport): ObjectNode = {
    val head = of(report.key) :+ ("at_ms" -> report.atMs)
    report match {
      case r: MergeReport => Json.obj(("type" -> "merge") +: (head ++ Seq(
          "version" -> r.version, "kind" -> r.kind, "reason" -> brief(r.reason), "took_ms" -> r.tookMs,
          "uploaded_bytes" -> r.uploadedBytes, "shared_files" -> r.sharedFiles, "new_files" -> r.newFiles,
          "own_files" -> r.ownFiles, "new_bytes" -> r.newBytes, "new_bytes_before" -> r.newBytesBefore,
          "failure" -> failed(r.failure))): _*)
      case r: FullReport => Json.obj(("type" -> "full") +: (head ++ Seq(
          "request" -> r.request, "version" -> r.version, "already" -> r.already,
          "failure" -> failed(r.failure))): _*)
    }
  }

  private def decode(node: JsonNode): Option[RareReport] = node.ifText("type").collect {
    case "merge" => MergeReport(
        key(node), node.number("at_ms"), node.number("version"), node.text("kind"), node.text("reason"),
        node.number("took_ms"), node.number("uploaded_bytes"), node.number("shared_files"), node.number("new_files"),
        node.number("own_files"), node.number("new_bytes"), node.number("new_bytes_before"), readFailed(node))
    case "full" => FullReport(
        key(node), node.number("at_ms"), node.text("request"), node.ifNumber("version"), node.flag("already"),
        readFailed(node))
  }

  private[observed] def failed(failure: Option[Failed]): Option[ObjectNode] =
    failure.map(failed => Json.obj("kind" -> failed.kind, "message" -> brief(failed.message)))

  /** Reads the field `failure` of a report. */
  private[observed] def readFailed(report: JsonNode): Option[Failed] =
    Option(report.get("failure")).filter(_.isObject).map(fields => Failed(fields.text("kind"), fields.text("message")))

  private def text(node: JsonNode): String = new String(Json.bytes(node), "UTF-8")
}

/**
 * Commits of an executor's stores as bytes: the driver of thousands of stores reads as many reports in every batch, and
 * parsing JSON would take most of the time. A message has each repeated text once. Pure functions.
 */
private[observed] object CommitMessages {
  private val Format = 1

  /** The largest number of variables of a store in a message; the user's come first. */
  private val MaxVariables = 50

  /** Writes the message with which an executor reports commits. */
  def write(executor: String, host: String, commits: Seq[StoreReport]): Array[Byte] = {
    val bytes = new ByteArrayOutputStream(64 + 320 * commits.size)
    val out = new Writer(new DataOutputStream(bytes))
    out.number(Format)
    out.text(executor)
    out.text(host)
    out.all(commits)(commit(out, _))
    bytes.toByteArray
  }

  /**
   * Reads a message.
   *
   * @return the executor, its host and its commits; None if another release sent the message
   * @throws java.io.IOException if the message is cut off
   */
  def read(message: Array[Byte]): Option[(String, String, Seq[StoreReport])] = {
    val in = new Reader(new DataInputStream(new ByteArrayInputStream(message)))
    if (in.number() != Format) None
    else {
      val (executor, host) = (in.text(), in.text())
      Some((executor, host, in.all(commit(in))))
    }
  }

  private def commit(out: Writer, r: StoreReport): Unit = {
    out.text(r.key.run)
    out.number(r.key.operator)
    out.number(r.key.partition)
    out.text(r.key.store)
    out.number(r.atMs)
    out.text(r.root)
    out.number(r.version)
    out.optional(r.id)(out.own)
    out.number(r.keys)
    out.all(r.variables.sortBy(v => (v.internal, v.name)).take(MaxVariables)) { variable =>
      out.text(variable.name)
      out.number(if (variable.internal) 1 else 0)
      out.number(variable.keys)
    }
    Seq(r.deltaBytes, r.writeMs, r.storeMs, r.memoryBytes, r.chainDeltas, r.deltasSinceFull, r.mergesSinceFull,
      r.chainFiles, r.chainBytes, r.sharedFiles, r.sharedBytes).foreach(out.number)
    out.optional(r.snapshotVersion)(out.number)
    out.optional(r.snapshotKind)(out.text)
    Seq(r.fullVersion, r.sinceSnapshotMs, r.sinceFullMs, r.predictedMs, r.objectiveMs)
      .foreach(out.optional(_)(out.number))
    Seq(r.merges.merges, r.merges.fulls, r.merges.ingests, r.merges.failures, r.failuresInRow.toLong)
      .foreach(out.number)
    out.optional(r.lastFailure) { failed =>
      out.text(failed.kind)
      out.own(Messages.brief(failed.message))
    }
    Seq(r.damagedFiles, r.agentRestarts, r.agentRestartsBefore).foreach(out.number)
    out.optional(r.restored) { restore =>
      Seq(if (restore.lazily) 1L else 0L, restore.tookMs, restore.predictedMs, restore.files, restore.deltas,
        restore.fetchedBytes).foreach(out.number)
    }
  }

  // Scala evaluates arguments in the order in which they stand, which is the order of the message.
  private def commit(in: Reader): StoreReport = StoreReport(
    key = StoreKey(run = in.text(), operator = in.number(), partition = in.number().toInt, store = in.text()),
    atMs = in.number(), root = in.text(), version = in.number(), id = in.optional(in.own()), keys = in.number(),
    variables = in.all(Variable(name = in.text(), internal = in.number() == 1, keys = in.number())),
    deltaBytes = in.number(), writeMs = in.number(), storeMs = in.number(), memoryBytes = in.number(),
    chainDeltas = in.number(), deltasSinceFull = in.number(), mergesSinceFull = in.number(), chainFiles = in.number(),
    chainBytes = in.number(), sharedFiles = in.number(), sharedBytes = in.number(),
    snapshotVersion = in.optional(in.number()), snapshotKind = in.optional(in.text()),
    fullVersion = in.optional(in.number()), sinceSnapshotMs = in.optional(in.number()),
    sinceFullMs = in.optional(in.number()), predictedMs = in.optional(in.number()),
    objectiveMs = in.optional(in.number()), merges = MergeCounts(in.number(), in.number(), in.number(), in.number()),
    failuresInRow = in.number().toInt, lastFailure = in.optional(Failed(kind = in.text(), message = in.own())),
    damagedFiles = in.number(), agentRestarts = in.number(), agentRestartsBefore = in.number(),
    restored = in.optional(RestoreReport(
      lazily = in.number() == 1, tookMs = in.number(), predictedMs = in.number(), files = in.number(),
      deltas = in.number(), fetchedBytes = in.number())))

  private final class Writer(out: DataOutputStream) {
    private val places = mutable.Map.empty[String, Int]

    def number(value: Long): Unit = out.writeLong(value)

    /** Writes a text that occurs once. */
    def own(value: String): Unit = out.writeUTF(value)

    /** Writes a text that may occur again: at the first time the text, then its number. */
    def text(value: String): Unit = {
      val place = places.getOrElse(value, places.size)
      out.writeInt(place)
      if (place == places.size) {
        places.update(value, place)
        own(value)
      }
    }

    def optional[T](value: Option[T])(write: T => Unit): Unit = {
      out.writeBoolean(value.isDefined)
      value.foreach(write)
    }

    def all[T](values: Seq[T])(write: T => Unit): Unit = {
      out.writeInt(values.size)
      values.foreach(write)
    }
  }

  private final class Reader(in: DataInputStream) {
    private val texts = mutable.ArrayBuffer.empty[String]

    def number(): Long = in.readLong()

    def own(): String = in.readUTF()

    def text(): String = {
      val place = in.readInt()
      if (place == texts.size) texts += own()
      texts(place)
    }

    def optional[T](read: => T): Option[T] = if (in.readBoolean()) Some(read) else None

    def all[T](read: => T): Seq[T] = Seq.fill(in.readInt())(read)
  }
}
