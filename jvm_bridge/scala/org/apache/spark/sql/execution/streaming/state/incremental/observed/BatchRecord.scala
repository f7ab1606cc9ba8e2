package org.apache.spark.sql.execution.streaming.state.incremental.observed

import java.io.IOException
import java.util.Comparator

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.core.{JsonFactory, JsonToken}
import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json.Fields

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
 * @param newBytes    bytes of the deltas; what merges of the version add is in the records of the merges
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
 * @param tookMs  how long the batch took; None in a record of an earlier release
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
    tookMs: Option[Long],
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
      application, run.facts, run.checkpoint, batch.number, batch.atMs, Some(batch.tookMs), BatchTotals.of(run.stores),
      run.stores, 0, merges, run.ended, run.error.map(Messages.brief))
  }

  /** Writes a record as a text, with as many stores as fit, and first those that need attention. */
  def text(record: BatchRecord): String = {
    val head = new String(Json.bytes(encode(record)), "UTF-8").stripSuffix("}")
    val text = new StringBuilder(LongestText).append(head).append(StoresBegin)
    val rows = inOrderOfUrgency(record.stores).iterator.map(store =>
      new String(Json.bytes(Json.array(Columns.map(_._2(store)))), "UTF-8"))
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
   * @throws java.io.IOException if it is not a record
   */
  def read(text: String): BatchRecord = decode(Json.parse(text))

  /**
   * Reads the label of a record, and no more of the text than it needs.
   *
   * @throws java.io.IOException if the text is not a record
   */
  def label(text: String): RecordLabel = {
    val parser = json.createParser(text)
    try {
      val names = mutable.Map.empty[String, String]
      if (parser.nextToken() != JsonToken.START_OBJECT) throw new IOException("a record is a JSON object")
      while (names.size < RecordLabel.Fields.size && parser.nextToken() == JsonToken.FIELD_NAME) {
        val name = parser.currentName
        if (parser.nextToken().isScalarValue && RecordLabel.Fields(name)) names.update(name, parser.getText)
        else parser.skipChildren()
      }
      RecordLabel(names("run"), names("query"), names("batch").toLong, names("at_ms").toLong)
    } catch {
      case e @ (_: NoSuchElementException | _: NumberFormatException) =>
        throw new IOException("the text is not a record", e)
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
    "checkpoint" -> record.checkpoint, "batch" -> record.batch, "at_ms" -> record.atMs, "batch_ms" -> record.tookMs,
    "totals" -> Json.obj(
      "stores" -> record.totals.stores, "new_bytes" -> record.totals.newBytes,
      "deltas_since_full" -> record.totals.deltasSinceFull, "shared_bytes" -> record.totals.sharedBytes,
      "objective_ms" -> record.totals.objectiveMs,
      "spreads" -> Json.obj(record.totals.spreads.toSeq.sortBy(_._1).map { case (name, spread) =>
        name -> Json.array(Seq(spread.p50, spread.p95, spread.max, spread.sum))
      }: _*)),
    "variables" -> variables(record.stores),
    "merged" -> Json.array(record.merges.counts.toSeq.sortBy(_._1).map { case ((version, kind, ok), count) =>
      Json.obj("version" -> version, "kind" -> kind, "ok" -> ok, "count" -> count)
    }),
    "longest" -> Json.array(record.merges.longest.toSeq.sorted.map { case (version, ms) =>
      Json.obj("version" -> version, "ms" -> ms)
    }),
    "gained" -> Json.array(record.merges.gained.toSeq.sorted.map { case (version, bytes) =>
      Json.obj("version" -> version, "bytes" -> bytes)
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
    val run = node.text("run")
    val root = node.text("checkpoint") + "/state"
    val variables = node.entries("variables").map { case (place, of) =>
      place -> of.elements.asScala.map(v => Variable(v.text("name"), v.flag("internal"), v.number("keys"))).toSeq
    }.toMap
    val stores = node.items("stores").map(row => store(named(row), run, root, variables))
    val totals = node.child("totals")
    val total = totals.number("stores").toInt
    BatchRecord(
      node.text("application"),
      QueryFacts(
        node.text("query"), run, node.ifText("name"), node.number("started_ms"),
        texts(node, "options"), byOperator(node, "operators"),
        if (node.has("titles")) byOperator(node, "titles") else Map.empty),
      node.text("checkpoint"), node.number("batch"), node.number("at_ms"), node.ifNumber("batch_ms"),
      BatchTotals(
        total, totals.number("new_bytes"), totals.number("deltas_since_full"), totals.number("shared_bytes"),
        totals.ifNumber("objective_ms"),
        totals.entries("spreads").map { case (name, part) =>
          name -> Spread(part.path(0).asDouble, part.path(1).asDouble, part.path(2).asDouble, part.path(3).asDouble)
        }.toMap),
      stores, math.max(0, total - stores.size), merges(node, run), node.flag("ended"), node.ifText("error"))
  }

  private def texts(node: JsonNode, field: String): Map[String, String] =
    node.entries(field).map { case (name, value) => name -> value.asText }.toMap

  private def byOperator(node: JsonNode, field: String): Map[Long, String] =
    texts(node, field).map { case (operator, text) => operator.toLong -> text }

  private def merges(node: JsonNode, run: String): MergesBetween = MergesBetween(
    node.items("merged")
      .map(of => (of.number("version"), of.text("kind"), of.flag("ok")) -> of.number("count")).toMap,
    node.items("reasons").map(of => of.number("version") -> of.text("reason")).toSet,
    node.items("failures").map { failed =>
      MergeReport(
        StoreKey(run, failed.number("operator"), failed.number("partition").toInt, failed.text("store")),
        failed.number("at_ms"), failed.number("version"), failed.text("kind"), failed.text("reason"),
        0, 0, 0, 0, 0, 0, 0, Messages.readFailed(failed))
    },
    if (node.has("longest")) node.items("longest").map(of => of.number("version") -> of.number("ms")).toMap
    else Map.empty,
    if (node.has("gained")) node.items("gained").map(of => of.number("version") -> of.number("bytes")).toMap
    else Map.empty)

  /** Returns the variables of each operator's stores, with the keys of all partitions of these stores. */
  private def variables(stores: Seq[StoreView]): ObjectNode = Json.obj(
    stores.groupBy(store => place(store.key)).toSeq.sortBy(_._1).map { case (of, members) =>
      val summed = members.flatMap(_.report.variables).groupBy(v => (v.internal, v.name)).toSeq.sortBy(_._1)
      of -> Json.array(summed.map { case ((internal, name), parts) =>
        Json.obj("name" -> name, "internal" -> internal, "keys" -> parts.map(_.keys).sum)
      })
    }: _*)

  private def place(key: StoreKey): String = s"${key.operator}/${key.store}"

  // One array for each store, because a batch may have thousands: most of its bytes would be names of fields. Event
  // logs hold these arrays, so a column is only ever added, and only at the end. Release 0.2.0 wrote those before
  // `restored_at_ms`, and neither `titles` nor `longest`. `new_bytes` and `gained` came after these.
  private val Columns: Seq[(String, StoreView => Any)] = Seq(
    "operator" -> (_.key.operator), "partition" -> (_.key.partition), "store" -> (_.key.store),
    "executor" -> (_.executor), "host" -> (_.host),
    "version" -> (_.report.version), "id" -> (_.report.id), "at_ms" -> (_.report.atMs), "keys" -> (_.report.keys),
    "delta_bytes" -> (_.report.deltaBytes), "write_ms" -> (_.report.writeMs), "store_ms" -> (_.report.storeMs),
    "memory_bytes" -> (_.report.memoryBytes),
    "chain_deltas" -> (_.report.chainDeltas), "deltas_since_full" -> (_.report.deltasSinceFull),
    "merges_since_full" -> (_.report.mergesSinceFull), "chain_files" -> (_.report.chainFiles),
    "chain_bytes" -> (_.report.chainBytes),
    "since_snapshot_ms" -> (_.report.sinceSnapshotMs), "since_full_ms" -> (_.report.sinceFullMs),
    "predicted_ms" -> (_.report.predictedMs), "objective_ms" -> (_.report.objectiveMs),
    "merges" -> (_.report.merges.merges), "fulls" -> (_.report.merges.fulls), "ingests" -> (_.report.merges.ingests),
    "failures" -> (_.report.merges.failures), "failures_in_row" -> (_.report.failuresInRow),
    "failure_kind" -> (_.report.lastFailure.map(_.kind)),
    "failure" -> (_.report.lastFailure.map(failed => Messages.brief(failed.message))),
    "shared_files" -> (_.report.sharedFiles), "shared_bytes" -> (_.report.sharedBytes),
    "snapshot_version" -> (_.report.snapshotVersion), "snapshot_kind" -> (_.report.snapshotKind),
    "full_version" -> (_.report.fullVersion),
    "uploaded_bytes" -> (_.sums.uploadedBytes), "restores" -> (_.sums.restores),
    "restored_ms" -> (_.sums.restored.map(_.tookMs)), "damaged_files" -> (_.sums.damagedFiles),
    "agent_restarts" -> (of => of.report.agentRestarts - of.report.agentRestartsBefore),
    "restored_at_ms" -> (_.sums.restored.map(_.atMs)),
    "restored_predicted_ms" -> (_.sums.restored.map(_.predictedMs)),
    "restored_version" -> (_.sums.restored.map(_.version)),
    "new_bytes" -> (_.mergedBytes))

  /** Returns the array of a store as an object with the names of its columns. */
  private def named(row: JsonNode): ObjectNode =
    Json.obj(Columns.map(_._1).zip(row.elements.asScala.toSeq): _*)

  private def store(row: ObjectNode, run: String, root: String, variables: Map[String, Seq[Variable]]): StoreView = {
    val key = StoreKey(run, row.number("operator"), row.number("partition").toInt, row.text("store"))
    StoreView(
      StoreReport(
        key = key, atMs = row.number("at_ms"), root = root, version = row.number("version"), id = row.ifText("id"),
        keys = row.number("keys"), variables = variables.getOrElse(place(key), Nil),
        deltaBytes = row.number("delta_bytes"), writeMs = row.number("write_ms"), storeMs = row.number("store_ms"),
        memoryBytes = row.number("memory_bytes"), chainDeltas = row.number("chain_deltas"),
        deltasSinceFull = row.number("deltas_since_full"), mergesSinceFull = row.number("merges_since_full"),
        chainFiles = row.number("chain_files"), chainBytes = row.number("chain_bytes"),
        sharedFiles = row.number("shared_files"), sharedBytes = row.number("shared_bytes"),
        snapshotVersion = row.ifNumber("snapshot_version"), snapshotKind = row.ifText("snapshot_kind"),
        fullVersion = row.ifNumber("full_version"), sinceSnapshotMs = row.ifNumber("since_snapshot_ms"),
        sinceFullMs = row.ifNumber("since_full_ms"), predictedMs = row.ifNumber("predicted_ms"),
        objectiveMs = row.ifNumber("objective_ms"),
        merges = MergeCounts(
          row.number("merges"), row.number("fulls"), row.number("ingests"), row.number("failures")),
        failuresInRow = row.number("failures_in_row").toInt,
        lastFailure = row.ifText("failure_kind").map(Failed(_, row.text("failure"))),
        damagedFiles = 0, agentRestarts = row.number("agent_restarts"), agentRestartsBefore = 0, restored = None),
      row.text("executor"), row.text("host"),
      StoreSums(row.number("uploaded_bytes"), row.number("restores"),
        row.ifNumber("restored_ms").map { tookMs =>
          if (row.has("restored_at_ms")) LastRestore(row.number("restored_at_ms"), tookMs,
            row.number("restored_predicted_ms"), row.number("restored_version"))
          else LastRestore(0, tookMs, 0, 0)
        },
        row.number("damaged_files")),
      row.ifNumber("new_bytes"))
  }
}
