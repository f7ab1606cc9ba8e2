package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.nio.file.{Path, Paths}

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{Json, VersionId}

// The answers and events of docs/protocol.md as types.

/**
 * Answer to `open`.
 *
 * @param incoming directory for new deltas
 * @param memoryBudgetBytes share of the data plane in the memory that the option allows
 * @param fileConnections number of connections that the agent wants for file requests; 0 if it needs none
 */
private[agent] final case class OpenAnswer(
    incoming: Path,
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
final case class SnapshotAges(sinceSnapshotMs: Option[Long], sinceFullMs: Option[Long])

/**
 * Attempts in storage above a version, without Spark's ids.
 *
 * @param ordinal the ordinal of an attempt that starts on the version now
 * @param attempts the attempts in storage; the commit of that attempt gives them back to the agent
 */
final case class SeenAttempts(ordinal: Long, attempts: Seq[VersionId])

/**
 * Answer to `restore`: a database to open, and the cost of making it.
 *
 * @param id the id of the version, if it has one
 * @param base the version of the database, which has `keys` keys; if its number is 0, there is no database
 * @param looseDeltas version and local file of the deltas after the base that are not in it, oldest first
 * @param sparse paths, below the directory, of the files of which parts are missing
 * @param pageBytes length of the pages of those files that may be evicted at any moment; 0: what was fetched stays
 * @param pagesAtOnce bytes of such pages that a call may bring, so that they stay until they are read
 * @param stored paths of such files in storage, by their path below the directory
 * @param needsRocksDb true if RocksDB alone can read a table of the database
 */
final case class RestoreAnswer(
    id: Option[String],
    seen: SeenAttempts,
    directory: String,
    base: VersionId,
    looseDeltas: Seq[(VersionId, String)],
    sparse: Set[String],
    pageBytes: Int,
    pagesAtOnce: Long,
    stored: Map[String, String],
    needsRocksDb: Boolean,
    keys: Long,
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
      s"${sparse.size} are fetched as they are read; $deltas deltas; $phases, $predictedMs ms predicted; $directory"
}

/** Duration of each phase of a restore, in milliseconds. */
final case class RestorePhases(chooseMs: Long, fetchMs: Long, verifyMs: Long, ingestMs: Long)

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
    hydration: HydrationCounters)

/**
 * Bytes of lazily restored files: read on demand, fetched in the background, and still missing; for some of the missing
 * bytes local disk has no room.
 */
final case class HydrationCounters(onDemandBytes: Long, hydratedBytes: Long, leftBytes: Long, withoutRoomBytes: Long)

/**
 * The result of a merge: a base to open, and for a snapshot its files.
 *
 * @param kind `ingest` (nothing was published), `incremental` or `full`
 * @param database the version of the database in `directory`, which has `keys` keys; if its number is 0, there is none
 * @param looseDeltas as of a restore, with `sparse`, `pageBytes`, `pagesAtOnce` and `stored`
 */
final case class MergedStore(
    kind: String,
    reason: String,
    directory: String,
    version: VersionId,
    keys: Long,
    database: VersionId,
    looseDeltas: Seq[(VersionId, String)],
    sparse: Set[String],
    pageBytes: Int,
    pagesAtOnce: Long,
    stored: Map[String, String],
    tookMs: Long,
    uploadedBytes: Long,
    sharedFiles: Long,
    newFiles: Long,
    ownFiles: Long)

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

/** A merge succeeded. */
final case class MergeEnded(store: Long, merged: MergedStore, ages: SnapshotAges, failuresInRow: Int) extends AgentEvent

/** A failed merge, the `failuresInRow`-th in a row. */
final case class MergeFailed(
    store: Long,
    version: Long,
    kind: String,
    reason: String,
    error: AgentException,
    failuresInRow: Int)
    extends AgentEvent

private[agent] object Answers {
  def open(ok: JsonNode): OpenAnswer = {
    val options = ok.path("options")
    OpenAnswer(
      Paths.get(text(ok, "incoming")), number(ok, "memory_budget_bytes"),
      number(ok, "file_connections").toInt,
      AgentLimits(number(options, "callTimeout"), number(options, "mergeTimeout"),
        number(options, "cleanupTimeout"), number(options, "tolerableFailedMerges").toInt,
        number(options, "verificationRateLimit")))
  }

  def restore(ok: JsonNode): RestoreAnswer = {
    val phases = ok.path("phases")
    RestoreAnswer(
      id = Json.text(ok, "id"),
      seen = seen(ok.path("attempts")),
      directory = text(ok, "directory"),
      base = version(ok.path("base")),
      looseDeltas = looseDeltas(ok),
      sparse = sparse(ok),
      pageBytes = number(ok, "page_bytes").toInt,
      pagesAtOnce = number(ok, "pages_at_once"),
      stored = stored(ok),
      needsRocksDb = ok.path("needs_rocksdb").asBoolean,
      keys = number(ok, "keys"),
      files = number(ok, "files"),
      deltas = number(ok, "deltas"),
      localFiles = number(ok, "local_files"),
      fetchedFiles = number(ok, "fetched_files"),
      fetchedBytes = number(ok, "fetched_bytes"),
      predictedMs = number(ok, "predicted_ms"),
      phases = RestorePhases(number(phases, "choose_ms"), number(phases, "fetch_ms"),
        number(phases, "verify_ms"), number(phases, "ingest_ms")),
      ages = ages(ok.path("ages")),
      warnings = ok.path("warnings").elements.asScala.map(_.asText).toSeq)
  }

  private def looseDeltas(node: JsonNode): Seq[(VersionId, String)] =
    node.path("beside").elements.asScala.map(delta => version(delta) -> text(delta, "path")).toSeq

  private def stored(node: JsonNode): Map[String, String] =
    node.path("stored").fields.asScala.map(entry => entry.getKey -> entry.getValue.asText).toMap

  private def sparse(node: JsonNode): Set[String] = node.path("sparse").elements.asScala.map(_.asText).toSet

  def commit(ok: JsonNode): CommitAnswer = {
    val chain = ok.path("chain")
    CommitAnswer(
      ChainSizes(number(chain, "deltas"), number(chain, "deltas_since_full"),
        number(chain, "merges_since_full"), number(chain, "files"), number(chain, "bytes"),
        number(chain, "shared_files"), number(chain, "shared_bytes"), optional(chain, "snapshot_version"),
        Json.text(chain, "snapshot_kind"), optional(chain, "full_version")),
      number(ok, "predicted_restore_ms"), number(ok, "restore_objective_ms"),
      ages(ok.path("ages")), seen(ok.path("attempts")), hydration(ok.path("hydration")))
  }

  private def hydration(node: JsonNode): HydrationCounters = HydrationCounters(
    number(node, "on_demand_bytes"), number(node, "hydrated_bytes"), number(node, "left_bytes"),
    number(node, "without_room_bytes"))

  def seen(node: JsonNode): SeenAttempts = SeenAttempts(number(node, "ordinal"), Json.versions(node.path("seen")))

  /** Returns the reason for which `snapshot` made none, if so. */
  def skipped(ok: JsonNode): Option[String] = Json.text(ok, "skipped")

  /** Returns the merges that run or wait, of all stores that the agent has open. */
  def currentMerges(ok: JsonNode): Seq[CurrentMerge] = ok.path("stores").elements.asScala.flatMap { store =>
    val running = Option(store.path("merges").get("running")).filter(_.isObject)
    val waiting = store.path("merges").path("waiting").elements.asScala.toSeq
    (running.toSeq ++ waiting).map { merge =>
      CurrentMerge(
        text(store, "run"), number(store, "operator"), number(store, "partition").toInt, text(store, "name"),
        number(merge, "version"), text(merge, "kind"), text(merge, "reason"), optional(merge, "elapsed_ms"),
        Json.text(merge, "why"))
    }
  }.toSeq

  def full(ok: JsonNode): FullAnswer = FullAnswer(version(ok), text(ok, "state") == "already")

  def cleanup(ok: JsonNode): CleanupAnswer =
    CleanupAnswer(number(ok, "deleted_files"), number(ok, "deleted_bytes"))

  def deltas(ok: JsonNode): DeltaFiles =
    DeltaFiles(text(ok, "directory"),
      ok.path("files").elements.asScala
        .map(file => number(file, "version") -> Paths.get(text(file, "path"))).toSeq)

  /** Returns the events with their numbers, oldest first. */
  def events(ok: JsonNode): Seq[(Long, AgentEvent)] =
    ok.path("events").elements.asScala.map(node => number(node, "number") -> event(node)).toSeq

  private def event(node: JsonNode): AgentEvent = text(node, "event") match {
    case "merged" =>
      MergeEnded(number(node, "store"), merged(node.path("merged")), ages(node.path("ages")),
        number(node, "failures_in_row").toInt)
    case "merge_failed" =>
      MergeFailed(number(node, "store"), number(node, "version"), text(node, "kind"), text(node, "reason"),
        error(node.path("error")), number(node, "failures_in_row").toInt)
    case "closed" => StoreClosed(number(node, "store"))
    case other => throw unexpected(s"an event '$other'")
  }

  def error(node: JsonNode): AgentException =
    new AgentException(
      Json.text(node, "kind").getOrElse("internal"), Json.text(node, "message").getOrElse("no message"),
      Json.text(node, "file"), Json.text(node, "option"))

  private def merged(node: JsonNode): MergedStore = {
    val base = node.path("base")
    MergedStore(
      kind = text(node, "kind"),
      reason = text(node, "reason"),
      directory = text(base, "directory"),
      version = version(base),
      keys = number(base, "keys"),
      database = version(base.path("base")),
      looseDeltas = looseDeltas(base),
      sparse = sparse(base),
      pageBytes = number(base, "page_bytes").toInt,
      pagesAtOnce = number(base, "pages_at_once"),
      stored = stored(base),
      tookMs = number(node, "took_ms"),
      uploadedBytes = number(node, "uploaded_bytes"),
      sharedFiles = number(node, "shared_files"),
      newFiles = number(node, "new_files"),
      ownFiles = number(node, "own_files"))
  }

  private def version(node: JsonNode): VersionId = VersionId(number(node, "version"), Json.text(node, "id"))

  private def ages(node: JsonNode): SnapshotAges =
    SnapshotAges(optional(node, "snapshot_age_ms"), optional(node, "full_age_ms"))

  private def optional(node: JsonNode, field: String): Option[Long] =
    Option(node.get(field)).filter(_.isNumber).map(_.asLong)

  private def number(node: JsonNode, field: String): Long =
    optional(node, field).getOrElse(throw unexpected(s"no number '$field'"))

  private def text(node: JsonNode, field: String): String =
    Json.text(node, field).getOrElse(throw unexpected(s"no text '$field'"))

  private def unexpected(found: String) =
    new AgentException("internal", s"the agent's answer has $found; is it of another version?")
}
