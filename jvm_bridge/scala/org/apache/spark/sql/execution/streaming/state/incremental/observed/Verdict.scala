package org.apache.spark.sql.execution.streaming.state.incremental.observed

import java.math.RoundingMode
import java.util.regex.Matcher

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json

/**
 * A rule that applies to a query.
 *
 * @param count number of stores or groups to which it applies
 * @param worst the store or group with the largest figure
 */
private[observed] final case class Finding(rule: Rule, sentence: String, count: Option[Int], worst: Option[JsonNode])

/**
 * A judgement on a query.
 *
 * @param severity `fine`, `warning` or `critical`
 * @param findings the findings, worst first
 */
private[observed] final case class Verdict(severity: String, sentence: String, findings: Seq[Finding])

/**
 * Evaluates the declared rules, as `state_store/observe/verdict.py` does: the cases in
 * `tests/observe/cases/verdict.json` hold both to the same sentences. Pure functions.
 */
private[observed] object Verdict {
  private val Severities = Seq("critical", "warning", "note")
  private val Placeholder = """\{(\w+)\}""".r
  private val MinPartitions = 3

  /** The severities that a metric shows, by their values. */
  val Levels: Seq[String] = Seq("fine", "warning", "critical")

  /**
   * Judges a query.
   *
   * @param figures `now_ms`, the `batch` if there is one, `totals` (`Totals`), `stores` (of `Store`) and, if the query
   *                cannot be read, an `error` (`Failure`)
   */
  def of(figures: JsonNode): Verdict = {
    val nowMs = figures.path("now_ms").asDouble
    val totals = figures.path("totals")
    val stores = figures.path("stores").elements.asScala.toSeq
    val groups = grouped(stores)
    val damaged = stores.map(_.path("error")).find(_.isObject)
    val failed = Some(figures.path("error")).filter(_.isObject)
    val findings = Model.rules.flatMap { rule =>
      rule.subject match {
        case "query" =>
          val error = if (rule.field == "damaged_stores") damaged else failed
          excess(rule, totals, nowMs).map(found => finding(rule, found, error, None, None))
        case "store" => worstOf(rule, stores, nowMs) { (found, store, count) =>
            val place =
              s"store ${store.path("operator").asLong}/${store.path("partition").asLong}/${store.path("store").asText}"
            val storesText = if (count == 1) place else s"$count stores (the worst is $place)"
            finding(rule, found, Some(store.path("last_failure")), Some(count), Some(store), "stores" -> storesText)
          }
        case _ => worstOf(rule, groups, nowMs) { (found, group, count) =>
            val name = Json.text(group, "operator_name").getOrElse(group.path("store").asText)
            val groupText =
              s"operator ${group.path("operator").asLong} ($name, partition ${group.path("partition").asLong})"
            finding(rule, found, None, Some(count), Some(group), "group" -> groupText)
          }
      }
    }.sortBy(found => Severities.indexOf(found.rule.severity))
    val worst = findings.headOption.fold("fine")(_.rule.severity)
    val severity = if (worst == "note") "fine" else worst
    Verdict(severity, sentence(severity, findings, totals, stores, number(figures, "batch"), nowMs), findings)
  }

  /** Returns the stores of each operator and store name, in the order of these. */
  def membersOf(stores: Seq[JsonNode]): Seq[((Long, String), Seq[JsonNode])] =
    stores.groupBy(store => (store.path("operator").asLong, store.path("store").asText)).toSeq.sortBy(_._1)

  /** Returns a `Group` of each operator's stores of one name, with the largest `partition`. */
  def grouped(stores: Seq[JsonNode]): Seq[ObjectNode] =
    membersOf(stores).map {
      case ((operator, store), members) =>
        val sized = members.flatMap(store => number(store, "bytes").map(size => (size, store.path("partition").asLong)))
        val largest = sized.sortBy { case (size, partition) => (-size, partition) }.headOption
        val median = medianOf(sized.map(_._1))
        val ratio = largest.map(_._1 / median).filter(_ => median > 0)
        Json.present(
          "operator" -> operator, "store" -> store, "operator_name" -> Json.text(members.head, "operator_name"),
          "partition" -> largest.map(_._2), "largest_partition" -> largest.map(_._2),
          "largest_bytes" -> largest.map(_._1.toLong), "largest_ratio" -> ratio,
          "skewed_ratio" -> ratio.filter(_ => sized.size >= MinPartitions && largest.get._1 > Model.skewLeastBytes))
    }

  private def medianOf(sizes: Seq[Double]): Double = {
    val sorted = sizes.sorted
    if (sorted.isEmpty) 0
    else if (sorted.size % 2 == 1) sorted(sorted.size / 2)
    else (sorted(sorted.size / 2 - 1) + sorted(sorted.size / 2)) / 2
  }

  /** Returns the figure and its limit if the rule's condition holds. */
  private def excess(rule: Rule, subject: JsonNode, nowMs: Double): Option[(Double, Double)] = for {
    value <- number(subject, rule.field)
    limit <- rule.aboveField.fold(Option(rule.above))(number(subject, _).filter(_ != 0).map(_ * rule.times))
    figure = if (rule.isAge) nowMs - value else value
    if figure > limit
  } yield (figure, limit)

  private def worstOf(rule: Rule, subjects: Seq[JsonNode], nowMs: Double)(
      make: ((Double, Double), JsonNode, Int) => Finding): Option[Finding] = {
    val hits = subjects.flatMap(subject => excess(rule, subject, nowMs).map(_ -> subject))
    hits.maxByOption(_._1._1).map { case (found, worst) => make(found, worst, hits.size) }
  }

  private def finding(
      rule: Rule,
      found: (Double, Double),
      error: Option[JsonNode],
      count: Option[Int],
      worst: Option[JsonNode],
      more: (String, String)*): Finding = {
    val words = Map(
      "value" -> inWords(found._1, rule.unit), "limit" -> inWords(found._2, rule.unit), "stores" -> "", "group" -> "",
      "error" -> error.flatMap(Json.text(_, "message")).getOrElse("no reason is known")) ++ more
    val sentence =
      Placeholder.replaceAllIn(rule.sentence, found => Matcher.quoteReplacement(words(found.group(1))))
    Finding(rule, sentence, count, worst)
  }

  private def sentence(
      severity: String,
      findings: Seq[Finding],
      totals: JsonNode,
      stores: Seq[JsonNode],
      batch: Option[Double],
      nowMs: Double): String =
    if (severity != "fine") {
      val others = findings.count(_.rule.severity != "note") - 1
      findings.head.sentence + (if (others > 0) s" (and $others more)" else "")
    } else {
      val at = batch.fold("no batch was committed yet")(number => s"batch ${number.toLong} was committed last")
      val size = inWords(stores.flatMap(number(_, "bytes")).sum, "bytes")
      val restore = stores.flatMap(number(_, "restore_predicted_ms")).maxOption.fold("") { slowest =>
        s", the slowest restore is expected to take ${inWords(slowest, "duration")}"
      }
      val looked = if (totals.has("damaged_stores")) "listings show" else "executors report"
      s"Fine as far as $looked: $at; ${stores.size} ${if (stores.size == 1) "store has" else "stores have"} " +
        s"$size$restore. ${unread(totals, nowMs)}"
    }

  /** Says of what nothing was read. */
  private def unread(totals: JsonNode, nowMs: Double): String =
    if (!totals.has("damaged_stores")) "Files in storage are not read here."
    else number(totals, "verified_ms").fold("The files were never verified.") { ms =>
      s"The files were last verified ${inWords(math.max(0, nowMs - ms), "duration")} ago."
    }

  /** Writes a figure for people: `1.2 GB`, `340 ms`, `12.5 s`, `3 min`, `2 h`, `5 d`, `4.1`, `17`. */
  private def inWords(figure: Double, unit: String): String = unit match {
    case "bytes" =>
      Seq(1e12 -> "TB", 1e9 -> "GB", 1e6 -> "MB", 1e3 -> "kB").find(figure >= _._1)
        .fold(s"${rounded(figure, 0)} bytes") { case (factor, name) => s"${rounded(figure / factor, 1)} $name" }
    case "duration" =>
      if (figure < 1000) s"${rounded(figure, 0)} ms"
      else if (figure < 120000) s"${rounded(figure / 1000, 1)} s"
      else if (figure < 7200000) s"${rounded(figure / 60000, 0)} min"
      else if (figure < 172800000) s"${rounded(figure / 3600000, 0)} h"
      else s"${rounded(figure / 86400000, 0)} d"
    case "ratio" => rounded(figure, 1)
    case _ => rounded(figure, 0)
  }

  private def rounded(value: Double, digits: Int): String =
    new java.math.BigDecimal(value).setScale(digits, RoundingMode.HALF_EVEN).toPlainString

  private def number(node: JsonNode, field: String): Option[Double] =
    Option(node.get(field)).filter(_.isNumber).map(_.asDouble)
}
