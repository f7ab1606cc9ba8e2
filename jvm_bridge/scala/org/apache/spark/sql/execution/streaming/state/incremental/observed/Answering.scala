package org.apache.spark.sql.execution.streaming.state.incremental.observed

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.execution.streaming.state.incremental.agent.{AgentDirectory, CurrentMerge}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json

/**
 * Answers the requests of the API from what the driver knows, by resource: `get` has the map of them, [[Documents]] makes
 * the JSON, and [[ApiServlet]] speaks HTTP. Methods throw a Problem for a request that cannot be answered. Any thread.
 */
private[observed] final class Answering(queries: Queries) {

  /**
   * Answers a GET.
   *
   * @param path segments of the path below `/checkpoints/api`
   * @throws Problem if there is no such resource, or a parameter is wrong
   */
  def get(path: Seq[String], parameters: Parameters): ObjectNode = path match {
    case Seq(Model.api) => service
    case Seq(Model.api, "queries") =>
      val judged = queries.all.map(query => query -> verdict(query))
      val worstFirst = judged.sortBy { case (_, verdict) => -Verdict.Levels.indexOf(verdict.severity) }
      Json.obj("queries" -> Json.array(worstFirst.map { case (query, verdict) =>
        Documents.query(query, verdict, living(query))
      }))
    case Seq(Model.api, "queries", name) =>
      val run = query(name)
      Documents.query(run, verdict(run), living(run))
    case Seq(Model.api, "queries", name, "verdict") => Documents.verdict(verdict(query(name)))
    case Seq(Model.api, "queries", name, "stores") =>
      val run = query(name)
      Json.present(page(run.record, parameters) :+ ("version" -> run.record.version): _*)
    case Seq(Model.api, "queries", name, "checkpoints") => history(query(name), parameters)
    case Seq(Model.api, "queries", name, "checkpoints", "triggers", id) => trigger(query(name), id)
    case Seq(Model.api, "queries", name, "checkpoints", version) => details(query(name), version, parameters)
    case Seq(Model.api, "queries", name, "config") =>
      Documents.configuration(query(name).record.facts, Answering.Provider)
    case Seq(Model.api, "queries", name, "merges") => merges(query(name))
    case Seq(Model.api, "queries", name, "files") => noFiles(query(name))
    case Seq(Model.api, "queries", name, "checkpoints", _, "files") => noFiles(query(name))
    case _ => throw new Problem(404, "missing", s"There is no such resource below ${Model.api}")
  }

  /**
   * Requests a full checkpoint.
   *
   * @param body the request as JSON
   * @param user the user who asks, if Spark knows
   * @return the id of the request
   * @throws Problem if the request is refused
   */
  def full(name: String, body: JsonNode, user: Option[String]): String = {
    val receiver = queries.receiver.getOrElse(throw new Problem(405, "option", Answering.NotHere))
    val reportedRun = query(name)
    val run = reportedRun.live.getOrElse(throw new Problem(409, "missing",
      s"The query '$name' does not run any more: use `state-store full ${reportedRun.record.checkpoint}`"))
    Answering.checkBody(body)
    val range = FullRange(
      Answering.number(body, "operator"), Answering.number(body, "partition").map(_.toInt),
      Answering.text(body, "store"))
    val ownId = Answering.text(body, "triggerId")
    if (!ownId.forall(_.matches("[A-Za-z0-9._-]{1,64}"))) {
      throw new Problem(400, "option", "triggerId must have 1 to 64 of the characters A-Z, a-z, 0-9, '.', '_' and '-'")
    }
    receiver.requests.ask(run, range, ownId, user) match {
      case Right(id) => id
      case Left(refusal) => throw new Problem(refusal.status, refusal.kind, refusal.detail.capitalize)
    }
  }

  /** Returns the figures of all queries for Prometheus. */
  def figures: Seq[Figures] = queries.all.map(query => figuresOf(query, observed(query)))

  /**
   * Returns the figures of a query.
   *
   * @param current the merges that run and wait; None if they are not known
   */
  def figuresOf(query: KnownQuery, current: Option[Seq[(String, CurrentMerge)]]): Figures = {
    val stores = documents(query.record)
    val assessment = verdict(query)
    val merges = current.map(_.partition(_._2.why.isDefined))
    val requests = queries.receiver.toSeq.flatMap(_.requests.all)
      .filter(request => request.run == query.record.facts.run && request.endedMs.isDefined)
    val fields = Documents.query(query, assessment, living(query))
    fields.setAll[ObjectNode](Json.present(
      "up" -> 1, "failed" -> (if (query.record.error.isDefined) 1 else 0),
      "severity" -> Verdict.Levels.indexOf(assessment.severity),
      "restore_objective_ms" -> query.record.totals.objectiveMs.getOrElse(0L), "idle_executors" -> idle(query),
      "merges_waiting" -> merges.map(_._1.size), "merges_running" -> merges.map(_._2.size)))
    Figures(
      query.address, fields, stores, Verdict.grouped(stores), query.live.fold(MetricValues())(_.metricValues),
      Map(
        "completed" -> requests.count(_.failure.isEmpty).toLong,
        "failed" -> requests.count(_.failure.isDefined).toLong))
  }

  private def service: ObjectNode = Json.present(
    "api" -> Model.api, "release" -> AgentDirectory.version, "source" -> queries.source,
    "full_checkpoints" -> queries.receiver.isDefined,
    "full_checkpoints_because" -> queries.receiver.fold(Option(Answering.NotHere))(_ => None))

  private def query(name: String): KnownQuery = queries.find(name).getOrElse {
    val addresses = queries.all.map(_.address)
    throw new Problem(404, "missing",
      s"There is no query '$name' here. " +
        (if (addresses.isEmpty) "No query with this state store has committed a batch yet"
         else s"There are: ${addresses.take(20).mkString(", ")}"))
  }

  private def verdict(query: KnownQuery): Verdict = Verdict.of(Json.obj(
    "now_ms" -> nowMs(query), "batch" -> query.record.batch, "totals" -> Documents.totals(query.record, idle(query)),
    "error" -> query.record.error.map(error => Json.obj("kind" -> "unknown", "message" -> error)),
    "stores" -> Json.array(documents(query.record))))

  private def living(query: KnownQuery): Seq[TakesTasks] =
    queries.receiver.filter(_ => query.running).fold(Seq.empty[TakesTasks])(_.executors)

  private def idle(query: KnownQuery): Option[Int] = Some(living(query)).filter(_.nonEmpty)
    .map(StoresByExecutor.idle(query.record.stores, _, System.currentTimeMillis))

  // The ages of a query that has ended do not grow.
  private def nowMs(query: KnownQuery): Long = if (query.running) System.currentTimeMillis else query.record.atMs

  private def documents(record: BatchRecord): Seq[ObjectNode] = record.stores.map(Documents.store(_, record.facts))

  private def page(record: BatchRecord, parameters: Parameters): Seq[(String, Any)] = {
    val operator = parameters.number("operator", 0, Long.MaxValue)
    val partition = parameters.number("partition", 0, Int.MaxValue)
    val name = parameters.text("store")
    val sort = parameters.choice("sort", Answering.SortFields).getOrElse("bytes")
    val offset = parameters.number("offset", 0, Int.MaxValue).getOrElse(0L).toInt
    val limit = parameters.number("limit", 1, Answering.MaxStores).getOrElse(50L).toInt
    val matching = record.stores.filter { store =>
      operator.forall(_ == store.key.operator) && partition.forall(_ == store.key.partition) &&
      name.forall(_ == store.key.store)
    }
    val documents = matching.map(Documents.store(_, record.facts))
    val sorted =
      if (sort == "partition") documents.sortBy { store =>
        (store.path("operator").asLong, store.path("store").asText, store.path("partition").asLong)
      }
      else documents.sortBy { store =>
        (-store.path(sort).asDouble(-1), store.path("operator").asLong, store.path("partition").asLong)
      }
    val isAll = operator.isEmpty && partition.isEmpty && name.isEmpty
    Seq("total" -> (matching.size + (if (isAll) record.omitted else 0)), "offset" -> offset,
      "stores" -> Json.array(sorted.slice(offset, offset + limit)))
  }

  private def history(query: KnownQuery, parameters: Parameters): ObjectNode = {
    val limit = parameters.number("limit", 1, Answering.MaxHistory).getOrElse(100L).toInt
    val before = parameters.number("before", 0, Long.MaxValue).getOrElse(Long.MaxValue)
    val records = recordsOf(query)
    val all = Documents.checkpoints(records, since(query))
    val older = all.filter(_.path("version").asLong < before)
    val stores = query.record.stores
    Json.present(
      Seq(
        "counts" -> Documents.counts(all, records, stores), "summary" -> Documents.summary(query.record.totals),
        "latest" -> all.headOption, "history" -> Json.array(older.take(limit)), "more" -> (older.size > limit),
        "latest_failure" -> Documents.latestFailure(query.record, failuresOf(query)),
        "latest_restore" -> Documents.latestRestore(stores)) ++ Documents.full(stores): _*)
  }

  private def details(query: KnownQuery, version: String, parameters: Parameters): ObjectNode = {
    val records = recordsOf(query)
    val filters =
      if (version == "latest") Some(query.record.batch)
      else Some(version.toLongOption.getOrElse(
        throw new Problem(400, "option",
          s"A version is a whole number, or 'latest'; '$version' is neither")
      ) - 1)
    val place = records.indexWhere(record => filters.contains(record.batch))
    if (place < 0) {
      val versions = records.map(_.version)
      throw new Problem(404, "missing",
        s"Version $version is not known here" +
          (if (versions.isEmpty) "" else s"; versions ${versions.min} to ${versions.max} are") +
          s". Older versions are in storage: `state-store checkpoints ${query.record.checkpoint}`")
    }
    val record = if (version == "latest") query.record else records(place)
    if (record.stores.isEmpty && record.totals.stores > 0) {
      throw new Problem(404, "missing",
        s"The driver keeps only the totals of version $version. For its stores read " +
          s"storage: `state-store checkpoints ${query.record.checkpoint}`")
    }
    val checkpoint = Documents.checkpoints(records, since(query))(place)
    Json.present(page(record, parameters) :+ ("checkpoint" -> checkpoint): _*)
  }

  private def since(query: KnownQuery): MergesBetween = query.live.fold(MergesBetween())(_.between)

  // The newest batch of a running query may not be in the status store yet.
  private def recordsOf(query: KnownQuery): Seq[BatchRecord] = {
    val stored = queries.records.of(query.record.facts.id)
    if (stored.headOption.exists(_.batch >= query.record.batch)) stored else query.record +: stored
  }

  private def trigger(query: KnownQuery, id: String): ObjectNode =
    queries.receiver.flatMap(_.requests.find(id)).filter(_.run == query.record.facts.run)
      .map(Documents.operation(_, query.address)).getOrElse(throw new Problem(404, "missing",
        s"The request '${id.take(64)}' is not known, or not known any more. The checkpoint shows its result: see " +
          "full_ms of each store in checkpoints/latest"))

  private def failuresOf(query: KnownQuery): Seq[MergeReport] = query.live
    .fold(recordsOf(query).flatMap(_.merges.failures))(_.merges.filter(_.failure.isDefined))

  private def merges(query: KnownQuery): ObjectNode =
    Documents.merges(observed(query).getOrElse(Nil), failuresOf(query), System.currentTimeMillis)

  private def observed(query: KnownQuery): Option[Seq[(String, CurrentMerge)]] =
    queries.receiver.filter(_ => query.running).map(_.currentMerges.of(query.record.facts.run))

  private def noFiles(query: KnownQuery): Nothing = throw new Problem(404, "missing",
    s"The driver does not read storage and does not know the files: use `state-store serve ${query.record.checkpoint}`")
}

private object Answering {

  /** Fields that stores are sorted by: those of `state_store/observe/documents.py`, also where no store has them. */
  private val SortFields =
    Seq("bytes", "deltas", "files", "keys", "restore_predicted_ms", "stored_bytes", "committed_ms", "partition")
  private val MaxStores = 1000L
  private val MaxHistory = 1000L
  private val Provider = s"${getClass.getPackageName.stripSuffix(".observed")}.IncrementalStateStoreProvider"
  private val NotHere = "The application has ended. Use `state-store full DIRECTORY` for the checkpoint of a query"

  private val Fields = Set("checkpointType", "operator", "partition", "store", "triggerId")

  private def checkBody(body: JsonNode): Unit = {
    val names = Seq.newBuilder[String]
    body.fieldNames.forEachRemaining(names += _)
    names.result().find(!Fields(_)).foreach { name =>
      throw new Problem(400, "option",
        s"The request has no field '${name.take(50)}': it has ${Fields.toSeq.sorted.mkString(", ")}")
    }
    if (!text(body, "checkpointType").forall(_ == "FULL")) {
      throw new Problem(400, "option", "checkpointType must be FULL: incremental checkpoints are made by every batch")
    }
  }

  private def text(body: JsonNode, field: String): Option[String] =
    Option(body.get(field)).filterNot(_.isNull).map { value =>
      if (value.isTextual) value.asText else throw new Problem(400, "option", s"$field must be a text")
    }

  private def number(body: JsonNode, field: String): Option[Long] =
    Option(body.get(field)).filterNot(_.isNull).map { value =>
      if (value.isIntegralNumber && value.canConvertToInt && value.asLong >= 0) value.asLong
      else throw new Problem(400, "option", s"$field must be a whole number of 0 or more")
    }
}
