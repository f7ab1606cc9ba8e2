package org.apache.spark.sql.execution.streaming.state.incremental.observed

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.execution.streaming.state.incremental.agent.CurrentMerge
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json
import org.apache.spark.sql.execution.streaming.state.incremental.settings.Declarations

/**
 * The answers of the API as JSON, by the schema of `state_store/observe/rest_answers.py`. A field without a known
 * value is left out. Pure functions.
 */
private[observed] object Documents {

  /** Returns a `Store`. */
  def store(view: StoreView, facts: QueryFacts): ObjectNode = {
    val r = view.report
    val snapshotMs = r.sinceSnapshotMs.map(r.atMs - _)
    val fullMs = r.sinceFullMs.map(r.atMs - _)
    Json.present(
      "operator" -> r.key.operator, "partition" -> r.key.partition, "store" -> r.key.store,
      "operator_name" -> facts.operators.get(r.key.operator), "version" -> r.version, "checkpoint_id" -> r.id,
      "committed_ms" -> r.atMs, "keys" -> r.keys, "deltas" -> r.chainDeltas,
      "deltas_since_full" -> r.deltasSinceFull, "merges_since_full" -> r.mergesSinceFull,
      "files" -> r.chainFiles, "bytes" -> r.chainBytes, "new_bytes" -> view.newBytes,
      "shared_files" -> r.sharedFiles, "shared_bytes" -> r.sharedBytes, "own_files" -> (r.chainFiles - r.sharedFiles),
      "own_bytes" -> (r.chainBytes - r.sharedBytes), "snapshot_version" -> r.snapshotVersion,
      "snapshot_kind" -> r.snapshotKind.map(kind => if (kind == Declarations.fullMerge) kind else "merge"),
      "full_version" -> r.fullVersion,
      "snapshot_ms" -> snapshotMs, "full_ms" -> fullMs,
      // Without any full checkpoint, the chain is at least as old as the run.
      "chain_since_ms" -> fullMs.getOrElse(math.min(facts.startedMs, r.atMs)),
      "restore_predicted_ms" -> r.predictedMs, "restore_objective_ms" -> r.objectiveMs,
      "restore_basis" -> r.predictedMs.map(_ => "measured"),
      "executor" -> view.executor, "host" -> view.host, "merges" -> r.merges.merges, "fulls" -> r.merges.fulls,
      "merge_failures" -> r.merges.failures, "failures_in_row" -> r.failuresInRow,
      "last_failure" -> r.lastFailure.map(failure), "memory_bytes" -> r.memoryBytes,
      "uploaded_bytes" -> view.sums.uploadedBytes, "restores" -> view.sums.restores,
      "restored_ms" -> view.sums.restored.map(_.tookMs), "damaged_files" -> view.sums.damagedFiles,
      "agent_restarts" -> (r.agentRestarts - r.agentRestartsBefore))
  }

  /**
   * Returns a `Query`.
   *
   * @param living the executors that take tasks
   */
  def query(query: KnownQuery, verdict: Verdict, living: Seq[TakesTasks]): ObjectNode = {
    val record = query.record
    Json.present(
      "name" -> query.address, "checkpoint" -> record.checkpoint, "verdict" -> verdict.severity,
      "read_ms" -> record.atMs, "id" -> record.facts.id, "run" -> record.facts.run,
      "application" -> record.application, "running" -> query.running, "batch" -> record.batch,
      "version" -> record.version, "committed_ms" -> record.atMs, "stores" -> record.totals.stores,
      "sentence" -> verdict.sentence,
      "operators" -> Json.array(operators(record)),
      "executors" -> Json.array(StoresByExecutor.of(record.stores, living).map { executor =>
        Json.obj("executor" -> executor.executor, "host" -> executor.host, "stores" -> executor.stores)
      }))
  }

  /** Returns `OperatorNames` of each operator; the user's variables come before internal ones. */
  private def operators(record: BatchRecord): Seq[ObjectNode] =
    record.stores.groupBy(_.key.operator).toSeq.sortBy(_._1).map { case (operator, stores) =>
      val variables = stores.flatMap(_.report.variables).map(v => (v.internal, v.name)).distinct.sorted.map(_._2)
      Json.present(
        "operator" -> operator, "name" -> record.facts.operators.getOrElse(operator, s"operator $operator"),
        "title" -> record.facts.titles.get(operator),
        "stores" -> Json.texts(stores.map(_.key.store).distinct.sorted),
        "variables" -> Json.texts(if (variables == Seq("default")) Nil else variables.filter(_ != "default")))
    }

  /** Returns a `Verdict`. */
  def verdict(verdict: Verdict): ObjectNode = Json.present(
    "severity" -> verdict.severity, "sentence" -> verdict.sentence,
    "findings" -> Json.array(verdict.findings.map { finding =>
      Json.present(
        "code" -> finding.rule.code, "severity" -> finding.rule.severity, "sentence" -> finding.sentence,
        "remedy" -> finding.rule.remedy, "link" -> finding.rule.link, "count" -> finding.count,
        "operator" -> finding.worst.map(_.path("operator").asLong),
        "partition" -> finding.worst.map(_.path("partition").asLong),
        "store" -> finding.worst.flatMap(Json.text(_, "store")))
    }))

  /**
   * Returns `Totals`: the figures of a query that rules judge.
   *
   * @param idle the number of executors that have no store; None if it is not known
   */
  def totals(record: BatchRecord, idle: Option[Int]): ObjectNode =
    Json.present(
      "unreadable" -> 0, "failed" -> (if (record.error.isDefined) 1 else 0), "committed_ms" -> record.atMs,
      "idle_executors" -> idle)

  /**
   * Returns a `Checkpoint` of each record of a query.
   *
   * @param records the records of the query, newest first
   * @param since   merges that ended after the newest record
   */
  def checkpoints(records: Seq[BatchRecord], since: MergesBetween): Seq[ObjectNode] = {
    val merges = since +: records.map(_.merges)
    val counts = merges.flatMap(_.counts).groupMapReduce(_._1)(_._2)(_ + _)
    val reasons = merges.flatMap(_.reasons).groupMap(_._1)(_._2)
    val longest = merges.flatMap(_.longest).groupMapReduce(_._1)(_._2)(math.max)
    val gained = merges.flatMap(_.gained).groupMapReduce(_._1)(_._2)(_ + _)
    records.map { record =>
      val published = counts.toSeq.collect {
        case ((version, kind, true), count) if version == record.version && kind != Declarations.ingestMerge =>
          kind -> count
      }
      val (fulls, others) = published.partition(_._1 == Declarations.fullMerge)
      val wrote = Seq(
        "delta" -> record.totals.stores.toLong, "merge" -> others.map(_._2).sum, "full" -> fulls.map(_._2).sum)
      val spreads = record.totals.spreads
      Json.present(
        "version" -> record.version, "batch" -> record.batch, "made_ms" -> record.atMs,
        "stores" -> record.totals.stores,
        "wrote" -> Json.obj(wrote.filter(_._2 > 0): _*),
        "deltas" -> spreads.get("deltas").fold(0L)(_.max.toLong), "deltas_since_full" -> record.totals.deltasSinceFull,
        "files" -> spreads.get("files").fold(0L)(_.sum.toLong), "bytes" -> spreads.get("bytes").fold(0L)(_.sum.toLong),
        "new_bytes" -> (record.totals.newBytes + gained.getOrElse(record.version, 0L)),
        "shared_bytes" -> record.totals.sharedBytes,
        "restore_predicted_ms" -> spreads.get("restore_predicted_ms").map(_.max),
        "restore_objective_ms" -> record.totals.objectiveMs,
        "merge_failures" -> record.merges.counts.collect { case ((_, _, false), count) => count }.sum,
        "reasons" -> Json.texts(reasons.getOrElse(record.version, Nil).distinct.sorted),
        "batch_ms" -> record.tookMs, "commit_ms" -> spreads.get("commit_ms").map(_.max.toLong),
        "write_ms" -> spreads.get("write_ms").map(_.max.toLong),
        "store_ms" -> spreads.get("store_ms").map(_.max.toLong), "merge_ms" -> longest.get(record.version))
    }
  }

  /** Returns the `Counts` of these checkpoints. */
  def counts(checkpoints: Seq[ObjectNode], records: Seq[BatchRecord], stores: Seq[StoreView]): ObjectNode = {
    def wrote(checkpoint: ObjectNode, kind: String): Boolean = checkpoint.path("wrote").path(kind).asLong > 0
    Json.present(
      "delta" -> checkpoints.count(checkpoint => !wrote(checkpoint, "merge") && !wrote(checkpoint, "full")),
      "merge" -> checkpoints.count(wrote(_, "merge")),
      "full" -> checkpoints.count(wrote(_, "full")),
      "failed" -> records.flatMap(_.merges.counts).collect { case ((_, _, false), count) => count }.sum,
      "restored" -> stores.map(_.sums.restores).sum)
  }

  /** Returns the version and the time of the newest full checkpoint, of the store with the oldest, as fields. */
  def full(stores: Seq[StoreView]): Seq[(String, Any)] = {
    val times = stores.map(store => store.report.sinceFullMs.map(store.report.atMs - _) -> store.report.fullVersion)
    val oldest = if (times.forall(_._1.isDefined)) times.minByOption(_._1) else None
    Seq("full_version" -> oldest.flatMap(_._2), "full_ms" -> oldest.flatMap(_._1))
  }

  /**
   * Returns the latest failure as a `Happening`: a merge, or the end of the query.
   *
   * @param failures merges that failed, newest first
   */
  def latestFailure(record: BatchRecord, failures: Seq[MergeReport]): Option[ObjectNode] = {
    val ended = record.error.map { error =>
      Json.obj(
        "at_ms" -> record.atMs, "message" -> s"The query failed after version ${record.version}: $error",
        "version" -> record.version)
    }
    ended.orElse(failures.maxByOption(_.atMs).map { merge =>
      happening(
        merge.key, merge.atMs, merge.version,
        s"A merge of kind ${merge.kind} failed: ${merge.failure.fold("")(_.message)}")
    })
  }

  /** Returns the latest restore as a `Happening`. */
  def latestRestore(stores: Seq[StoreView]): Option[ObjectNode] = {
    val restores = // event logs of earlier releases have no time of a restore
      for { store <- stores; restore <- store.sums.restored if restore.atMs > 0 } yield store -> restore
    restores.maxByOption(_._2.atMs).map { case (store, restore) =>
      val message = s"Version ${restore.version} was restored on executor ${store.executor} (${store.host}) in " +
        s"${restore.tookMs} ms; ${restore.predictedMs} ms were expected."
      happening(store.key, restore.atMs, restore.version, message).put("took_ms", restore.tookMs)
    }
  }

  private def happening(key: StoreKey, atMs: Long, version: Long, message: String): ObjectNode = Json.obj(
    "at_ms" -> atMs, "message" -> message, "operator" -> key.operator, "partition" -> key.partition,
    "store" -> key.store, "version" -> version)

  /** Returns a `Summary`. */
  def summary(totals: BatchTotals): ObjectNode =
    Json.present(totals.spreads.toSeq.sortBy(_._1).map { case (name, spread) =>
      name -> Json.obj("p50" -> spread.p50, "p95" -> spread.p95, "max" -> spread.max, "sum" -> spread.sum)
    }: _*)

  /**
   * Returns `Merges`.
   *
   * @param current  merges that run or wait, with their executors
   * @param failures merges that failed, newest first
   */
  def merges(current: Seq[(String, CurrentMerge)], failures: Seq[MergeReport], nowMs: Long): ObjectNode = {
    def now(executor: String, merge: CurrentMerge): ObjectNode = Json.present(
      "operator" -> merge.operator, "partition" -> merge.partition, "store" -> merge.store, "kind" -> merge.kind,
      "state" -> (if (merge.why.isEmpty) "running" else "waiting"), "reason" -> merge.reason,
      "since_ms" -> merge.runsMs.map(nowMs - _), "version" -> merge.version, "executor" -> executor,
      "waits_for" -> merge.why)
    def failed(merge: MergeReport): ObjectNode = Json.present(
      "operator" -> merge.key.operator, "partition" -> merge.key.partition, "store" -> merge.key.store,
      "kind" -> merge.kind, "state" -> "failed", "reason" -> merge.reason, "since_ms" -> merge.atMs,
      "version" -> merge.version, "failure" -> merge.failure.map(failure))
    val (waiting, running) = current.partition(_._2.why.isDefined)
    Json.present(
      "waiting" -> Json.array(waiting.map((now _).tupled)),
      "running" -> Json.array(running.sortBy(-_._2.runsMs.getOrElse(0L)).map((now _).tupled)),
      "failed" -> Json.array(failures.take(MaxFailures).map(failed)))
  }

  /** Returns a `Configuration`. */
  def configuration(facts: QueryFacts, provider: String): ObjectNode = Json.present(
    "provider" -> provider,
    "options" -> Json.array(Declarations.optionNames.map { name =>
      val option = Declarations.option(name)
      Json.present("name" -> name, "value" -> facts.options.getOrElse(name, option.default),
        "default" -> option.default, "meaning" -> option.meaning)
    }))

  /** Returns an `Operation`. */
  def operation(request: FullRequest, query: String): ObjectNode = {
    val outcomes = request.outcomes.values.toSeq
      .sortBy(outcome => (outcome.failure.isEmpty, outcome.key.operator, outcome.key.partition, outcome.key.store))
    Json.present(
      "request-id" -> request.id,
      "status" -> Json.obj("id" -> (if (request.endedMs.isEmpty) "IN_PROGRESS" else "COMPLETED")),
      "query" -> query, "asked_ms" -> request.askedMs, "ended_ms" -> request.endedMs, "wanted" -> request.wanted.size,
      "made" -> outcomes.count(_.failure.isEmpty), "failed" -> outcomes.count(_.failure.isDefined),
      "stores" -> Json.array(outcomes.take(MaxOutcomes).map { outcome =>
        Json.present(
          "operator" -> outcome.key.operator, "partition" -> outcome.key.partition, "store" -> outcome.key.store,
          "outcome" -> (if (outcome.failure.isDefined) "failed" else if (outcome.already) "already" else "made"),
          "version" -> outcome.version, "duration_ms" -> outcome.tookMs, "failure" -> outcome.failure.map(failure))
      }),
      "operation" -> request.endedMs.map { _ =>
        Json.present(
          "checkpointId" -> outcomes.flatMap(_.version).maxOption, "failureCause" -> request.failure.map(_.message))
      },
      "failure" -> request.failure.map(failure))
  }

  /** Returns a `Failure`. */
  private def failure(failed: Failed): ObjectNode = Json.present("kind" -> failed.kind, "message" -> failed.message)

  private val MaxFailures = 100
  private val MaxOutcomes = 1000
}
