package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.nio.file.{Path, Paths}

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{MissingFieldException, VersionId}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json.Fields

// The answers and events of docs/protocol.md as types.

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
final case class MadeBase(
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
    base: MadeBase,
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
    base: MadeBase,
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

  private def base(node: JsonNode): MadeBase =
    MadeBase(
      directory = node.text("directory"),
      database = version(node.child("base")),
      keys = node.number("keys"),
      looseDeltas = node.items("beside").map(delta => version(delta) -> delta.text("path")),
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
