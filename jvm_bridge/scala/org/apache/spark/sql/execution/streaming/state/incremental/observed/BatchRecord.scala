package org.apache.spark.sql.execution.streaming.state.incremental.observed

import java.io.IOException
import java.util.Comparator

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.core.{JsonFactory, JsonToken}
import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.{ArrayNode, ObjectNode}

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json

/** The spread of a figure over the stores of a query: two quantiles, the maximum and the sum. */
private[observed] final case class Spread(p50: Double, p95: Double, max: Double, sum: Double)

private[observed] object Spread {
  /** Returns the spread of some values; None if there are none. */
  def of(values: Array[Double]): Option[Spread] = if (values.isEmpty) None
  else {
    val sorted = values.clone
    java.util.Arrays.sort(sorted)
    def quantile(part: Double): Double =
      sorted(math.min(sorted.length - 1, math.ceil(part * sorted.length).toInt - 1).max(0))
    Some(Spread(quantile(0.5), quantile(0.95), sorted.last, sorted.sum))
  }
}

/**
 * Figures over all stores of a query at one version.
 *
 * @param stores      number of stores that have reported the version
 * @param sharedBytes bytes that older versions wrote
 * @param spreads     spreads of bytes, files, keys, deltas, predicted restores and commits over the stores, by name
 */
private[observed] final case class BatchTotals(
    stores: Int,
    newBytes: Long,
    deltasSinceFull: Long,
    sharedBytes: Long,
    objectiveMs: Option[Long],
    spreads: Map[String, Spread])

private[observed] object BatchTotals {
  def of(stores: Seq[StoreView]): BatchTotals = {
    val reports = stores.map(_.report)
    val spreads = Seq[(String, Iterator[Long])](
      "bytes" -> reports.iterator.map(_.chainBytes),
      "files" -> reports.iterator.map(_.chainFiles),
      "keys" -> reports.iterator.map(_.keys),
      "deltas" -> reports.iterator.map(_.chainDeltas),
      "restore_predicted_ms" -> reports.iterator.flatMap(_.predictedMs),
      "commit_ms" -> reports.iterator.map(r => r.writeMs + r.storeMs),
      "write_ms" -> reports.iterator.map(_.writeMs),
      "store_ms" -> reports.iterator.map(_.storeMs))
    BatchTotals(
      stores.size, reports.map(_.deltaBytes).sum, reports.map(_.deltasSinceFull).maxOption.getOrElse(0L),
      reports.map(_.sharedBytes).sum, reports.flatMap(_.objectiveMs).minOption,
      spreads.flatMap { case (name, values) => Spread.of(values.map(_.toDouble).toArray).map(name -> _) }.toMap)
  }
}

/**
 * A batch of a query and its stores after it, as the event log and the status store keep it. Immutable.
 *
 * @param stores  the stores; if there are very many, a text has those that need attention first
 * @param omitted number of stores that are left out
 * @param merges  the merges that ended since the batch before
 * @param ended   true if the run ended with it; the record then repeats the last batch
 */
private[observed] final case class BatchRecord(
    application: String,
    facts: QueryFacts,
    checkpoint: String,
    batch: Long,
    atMs: Long,
    totals: BatchTotals,
    stores: Seq[StoreView],
    omitted: Int,
    merges: MergesBetween,
    ended: Boolean,
    error: Option[String]) {
  def version: Long = batch + 1
}

/** The label by which a record is found: its run, query, batch and time in milliseconds since 1970. */
private[observed] final case class RecordLabel(run: String, query: String, batch: Long, atMs: Long)

private object RecordLabel {
  val Fields: Set[String] = Set("run", "query", "batch", "at_ms")
}

/** A store with the figures that decide its place in a record. */
private final case class Urgent(store: StoreView, failuresInRow: Int, restore: Double)

private object Urgent {
  val order: Comparator[Urgent] = Comparator.comparingInt[Urgent](-_.failuresInRow)
    .thenComparingDouble(-_.restore).thenComparingLong(-_.store.report.chainBytes)
}

private[observed] object BatchRecord {
  /** The longest text of a record, in characters: Spark keeps one for each batch. */
  val LongestText = 65536

  /**
   * Returns the record of a run's newest batch; None before the first batch ends.
   *
   * @param merges the merges that ended since the record before
   */
  def of(application: String, run: RunView, merges: MergesBetween): Option[BatchRecord] = run.batch.map { batch =>
    BatchRecord(
      application, run.facts, run.checkpoint, batch, run.batchMs, BatchTotals.of(run.stores),
      run.stores, 0, merges, run.ended, run.error.map(Messages.brief))
  }

  /** Writes a record as a text, with as many stores as fit, and first those that need attention. */
  def text(record: BatchRecord): String = {
    val head = new String(Json.bytes(encode(record)), "UTF-8").stripSuffix("}")
    val text = new StringBuilder(LongestText).append(head).append(StoresBegin)
    val rows = inOrderOfUrgency(record.stores).iterator.map(store => new String(Json.bytes(row(store)), "UTF-8"))
    var isFirst = true
    var next = rows.nextOption()
    while (next.exists(text.length + _.length + StoresEnd.length + 1 <= LongestText)) {
      if (!isFirst) text.append(',')
      text.append(next.get)
      isFirst = false
      next = rows.nextOption()
    }
    text.append(StoresEnd).toString
  }

  /** Cuts the stores off a text, for the history, without parsing it. */
  def briefText(text: String): String = text.lastIndexOf(StoresBegin) match {
    case -1 => text
    case begin => text.substring(0, begin) + StoresBegin + StoresEnd
  }

  /**
   * Reads the text of a record.
   *
   * @throws java.io.IOException if it is no record
   */
  def read(text: String): BatchRecord = decode(Json.parse(text))

  /**
   * Reads the label of a record, and no more of the text than it needs.
   *
   * @throws java.io.IOException if the text is no record
   */
  def label(text: String): RecordLabel = {
    val parser = json.createParser(text)
    try {
      val found = mutable.Map.empty[String, String]
      if (parser.nextToken() != JsonToken.START_OBJECT) throw new IOException("a record is a JSON object")
      while (found.size < RecordLabel.Fields.size && parser.nextToken() == JsonToken.FIELD_NAME) {
        val name = parser.currentName
        if (parser.nextToken().isScalarValue && RecordLabel.Fields(name)) found.update(name, parser.getText)
        else parser.skipChildren()
      }
      RecordLabel(found("run"), found("query"), found("batch").toLong, found("at_ms").toLong)
    } catch {
      case e @ (_: NoSuchElementException | _: NumberFormatException) =>
        throw new IOException("the text is no record", e)
    } finally parser.close()
  }

  // The stores come last, so that a text without them is the beginning of it. In JSON a backslash stands before each
  // quote inside a text, so that this marker occurs nowhere else.
  private val StoresBegin = ",\"stores\":["
  private val StoresEnd = "]}"

  private val json = new JsonFactory

  /** Sorts stores: failing stores first, then those with the longest restores, then the largest. */
  private def inOrderOfUrgency(stores: Seq[StoreView]): Seq[StoreView] = {
    val urgent = stores.map { store =>
      val r = store.report
      Urgent(store, r.failuresInRow, r.predictedMs.fold(0.0)(_.toDouble / r.objectiveMs.filter(_ > 0).getOrElse(1L)))
    }.toArray
    java.util.Arrays.sort(urgent, Urgent.order)
    urgent.toSeq.map(_.store)
  }

  private def encode(record: BatchRecord): ObjectNode = Json.obj(
    "v" -> 1, "application" -> record.application, "query" -> record.facts.id, "run" -> record.facts.run,
    "name" -> record.facts.name, "started_ms" -> record.facts.startedMs, "options" -> record.facts.options,
    "operators" -> record.facts.operators.map { case (id, name) => id.toString -> name },
    "titles" -> record.facts.titles.map { case (id, title) => id.toString -> title },
    "checkpoint" -> record.checkpoint, "batch" -> record.batch, "at_ms" -> record.atMs,
    "totals" -> Json.obj(
      "stores" -> record.totals.stores, "new_bytes" -> record.totals.newBytes,
      "deltas_since_full" -> record.totals.deltasSinceFull, "shared_bytes" -> record.totals.sharedBytes,
      "objective_ms" -> record.totals.objectiveMs,
      "spreads" -> Json.obj(record.totals.spreads.toSeq.sortBy(_._1).map { case (name, spread) =>
        name -> Json.numbers(Seq(spread.p50, spread.p95, spread.max, spread.sum))
      }: _*)),
    "variables" -> variables(record.stores),
    "merged" -> Json.array(record.merges.counts.toSeq.sortBy(_._1).map { case ((version, kind, ok), count) =>
      Json.obj("version" -> version, "kind" -> kind, "ok" -> ok, "count" -> count)
    }),
    "longest" -> Json.array(record.merges.longest.toSeq.sorted.map { case (version, ms) =>
      Json.obj("version" -> version, "ms" -> ms)
    }),
    "reasons" -> Json.array(record.merges.reasons.toSeq.sorted.map { case (version, reason) =>
      Json.obj("version" -> version, "reason" -> reason)
    }),
    "failures" -> Json.array(record.merges.failures.map { merge =>
      Json.obj("operator" -> merge.key.operator, "partition" -> merge.key.partition, "store" -> merge.key.store,
        "at_ms" -> merge.atMs, "version" -> merge.version, "kind" -> merge.kind, "reason" -> merge.reason,
        "failure" -> Messages.failed(merge.failure))
    }),
    "ended" -> record.ended, "error" -> record.error)

  private def decode(node: JsonNode): BatchRecord = {
    val run = node.path("run").asText
    val root = node.path("checkpoint").asText + "/state"
    val known = node.path("variables").properties.asScala.map { field =>
      field.getKey -> field.getValue.elements.asScala
        .map(v => Variable(v.path("name").asText, v.path("internal").asBoolean, v.path("keys").asLong)).toSeq
    }.toMap
    val stores = node.path("stores").elements.asScala.map(store(_, run, root)).toSeq
    val totals = node.path("totals")
    BatchRecord(
      node.path("application").asText,
      QueryFacts(
        node.path("query").asText, run, Json.text(node, "name"), node.path("started_ms").asLong,
        node.path("options").properties.asScala.map(option => option.getKey -> option.getValue.asText).toMap,
        names(node.path("operators")), names(node.path("titles"))),
      node.path("checkpoint").asText, node.path("batch").asLong, node.path("at_ms").asLong,
      BatchTotals(
        totals.path("stores").asInt, totals.path("new_bytes").asLong, totals.path("deltas_since_full").asLong,
        totals.path("shared_bytes").asLong, optional(totals.get("objective_ms")),
        totals.path("spreads").properties.asScala.map { field =>
          val part = field.getValue
          field.getKey ->
            Spread(part.path(0).asDouble, part.path(1).asDouble, part.path(2).asDouble, part.path(3).asDouble)
        }.toMap),
      stores.map(store => withVariables(store, known)), math.max(0, totals.path("stores").asInt - stores.size),
      decodeMerges(node, run),
      node.path("ended").asBoolean, Json.text(node, "error"))
  }

  private def names(node: JsonNode): Map[Long, String] =
    node.properties.asScala.map(name => name.getKey.toLong -> name.getValue.asText).toMap

  private def decodeMerges(node: JsonNode, run: String): MergesBetween = MergesBetween(
    node.path("merged").elements.asScala.map { merged =>
      (merged.path("version").asLong, merged.path("kind").asText, merged.path("ok").asBoolean) ->
        merged.path("count").asLong
    }.toMap,
    node.path("reasons").elements.asScala
      .map(reason => reason.path("version").asLong -> reason.path("reason").asText).toSet,
    node.path("failures").elements.asScala.map { failed =>
      MergeReport(
        StoreKey(run, failed.path("operator").asLong, failed.path("partition").asInt, failed.path("store").asText),
        failed.path("at_ms").asLong, failed.path("version").asLong, failed.path("kind").asText,
        failed.path("reason").asText, 0, 0, 0, 0, 0, Messages.readFailed(failed.get("failure")))
    }.toSeq,
    node.path("longest").elements.asScala.map(of => of.path("version").asLong -> of.path("ms").asLong).toMap)

  /** Returns the variables of each operator's stores, with the keys of all partitions of these stores. */
  private def variables(stores: Seq[StoreView]): ObjectNode = Json.obj(
    stores.groupBy(store => place(store.key)).toSeq.sortBy(_._1).map { case (of, members) =>
      val summed = members.flatMap(_.report.variables).groupBy(v => (v.internal, v.name)).toSeq.sortBy(_._1)
      of -> Json.array(summed.map { case ((internal, name), parts) =>
        Json.obj("name" -> name, "internal" -> internal, "keys" -> parts.map(_.keys).sum)
      })
    }: _*)

  private def withVariables(store: StoreView, known: Map[String, Seq[Variable]]): StoreView =
    store.copy(report = store.report.copy(variables = known.getOrElse(place(store.key), Nil)))

  private def place(key: StoreKey): String = s"${key.operator}/${key.store}"

  // One array for each store, because a batch may have thousands: most of its bytes would be names of fields.
  private def row(store: StoreView): ArrayNode = {
    val r = store.report
    Json.row(Seq(
      r.key.operator, r.key.partition, r.key.store, store.executor, store.host, r.version, r.id, r.atMs, r.keys,
      r.deltaBytes, r.writeMs, r.storeMs, r.memoryBytes, r.chainDeltas, r.deltasSinceFull, r.mergesSinceFull,
      r.chainFiles, r.chainBytes, r.sinceSnapshotMs, r.sinceFullMs, r.predictedMs, r.objectiveMs, r.merges.merges,
      r.merges.fulls, r.merges.ingests, r.merges.failures, r.failuresInRow, r.lastFailure.map(_.kind),
      r.lastFailure.map(failed => Messages.brief(failed.message)), r.sharedFiles, r.sharedBytes, r.snapshotVersion,
      r.snapshotKind, r.fullVersion, store.sums.uploadedBytes, store.sums.restores,
      store.sums.restored.map(_.tookMs), store.sums.damagedFiles, r.agentRestarts - r.agentRestartsBefore,
      store.sums.restored.map(_.atMs), store.sums.restored.map(_.predictedMs), store.sums.restored.map(_.version)))
  }

  private def store(row: JsonNode, run: String, root: String): StoreView = {
    def long(place: Int): Long = row.path(place).asLong
    def text(place: Int): Option[String] = Option(row.get(place)).filterNot(_.isNull).map(_.asText)
    StoreView(
      StoreReport(
        key = StoreKey(run, long(0), row.path(1).asInt, row.path(2).asText), atMs = long(7), root = root,
        version = long(5), id = text(6), keys = long(8), variables = Nil, deltaBytes = long(9), writeMs = long(10),
        storeMs = long(11), memoryBytes = long(12), chainDeltas = long(13), deltasSinceFull = long(14),
        mergesSinceFull = long(15), chainFiles = long(16), chainBytes = long(17),
        sinceSnapshotMs = optional(row.get(18)), sinceFullMs = optional(row.get(19)),
        predictedMs = optional(row.get(20)), objectiveMs = optional(row.get(21)),
        merges = MergeCounts(long(22), long(23), long(24), long(25)), failuresInRow = row.path(26).asInt,
        lastFailure = text(27).map(Failed(_, text(28).getOrElse(""))), sharedFiles = long(29), sharedBytes = long(30),
        snapshotVersion = optional(row.get(31)), snapshotKind = text(32), fullVersion = optional(row.get(33)),
        damagedFiles = 0, agentRestarts = long(38), agentRestartsBefore = 0, restored = None),
      row.path(3).asText, row.path(4).asText,
      StoreSums(
        long(34), long(35), optional(row.get(36)).map(LastRestore(long(39), _, long(40), long(41))), long(37)))
  }

  private def optional(node: JsonNode): Option[Long] = Option(node).filter(_.isNumber).map(_.asLong)
}
