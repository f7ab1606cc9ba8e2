package org.apache.spark.sql.execution.streaming.state.incremental.observed

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json

/** A metric that the Python package declares in `state_store/observe/metrics.py`. */
private[observed] final case class Metric(
    name: String,
    kind: String,
    subject: String,
    meaning: String,
    sources: Set[String],
    field: Option[String],
    scale: Double,
    over: String,
    labels: Seq[String],
    buckets: Seq[Double])

/** A custom metric of the stores in Spark's progress that the Python package declares beside these. */
private[incremental] final case class ProgressMetric(name: String, kind: String, meaning: String)

/** A rule of the verdict that the Python package declares in `state_store/observe/verdict.py`. */
private[observed] final case class Rule(
    code: String,
    severity: String,
    subject: String,
    field: String,
    unit: String,
    sentence: String,
    remedy: String,
    link: String,
    above: Double,
    aboveField: Option[String],
    times: Double,
    isAge: Boolean)

/**
 * The metrics and rules that the Python package declares for the driver and for `state-store serve`. The build packs
 * them into the jar. Immutable.
 */
private[incremental] object Model {
  private val Resource = "/state-store/v1/declarations.json"

  private val root: JsonNode = {
    val in = getClass.getResourceAsStream(Resource)
    if (in == null) throw new IllegalStateException(s"the state store's jar is incomplete: it has no $Resource")
    try Json.parse(in.readAllBytes())
    finally in.close()
  }

  /** The version of the API. */
  private[observed] val api: String = root.path("api").asText

  /** A store with fewer bytes never counts as too large for its group. */
  private[observed] val skewLeastBytes: Double = root.path("skew_least_bytes").asDouble(64 << 20)

  /** The number of stores of a query above which metrics of stores are aggregated over the partitions. */
  private[observed] val maxStores: Int = root.path("max_stores").asInt

  private val operatorWords: Map[String, String] =
    root.path("operator_words").properties.asScala.map(words => words.getKey -> words.getValue.asText).toMap

  /** The number of columns that the title of an operator names. */
  private val maxKeys: Int = root.path("max_keys").asInt

  /**
   * Returns the name of an operator for people, such as `aggregation on user`.
   *
   * @param name Spark's name of the operator
   * @param keys the columns by which it groups its rows
   */
  private[observed] def titleOf(name: String, keys: Seq[String]): String = {
    val more = if (keys.size > maxKeys) s" and ${keys.size - maxKeys} more" else ""
    operatorWords.getOrElse(name, name) + (if (keys.isEmpty) "" else s" on ${keys.take(maxKeys).mkString(", ")}$more")
  }

  /** The labels of the metrics of a subject. */
  private[observed] val labels: Map[String, Seq[String]] =
    root.path("labels").properties.asScala.map(subject => subject.getKey -> texts(subject.getValue)).toMap

  /** The metrics that the driver has, in the order of the exposition. */
  private[observed] val metrics: Seq[Metric] = root.path("metrics").elements.asScala.map { node =>
    Metric(
      node.path("name").asText, node.path("kind").asText, node.path("subject").asText, node.path("meaning").asText,
      texts(node.path("sources")).toSet, Json.text(node, "field"), node.path("scale").asDouble(1),
      node.path("over").asText, texts(node.path("labels")), node.path("buckets").elements.asScala.map(_.asDouble).toSeq)
  }.filter(_.sources("driver")).toSeq

  /** The metrics in Spark's progress. */
  val progress: Seq[ProgressMetric] = root.path("progress").elements.asScala.map { node =>
    ProgressMetric(node.path("name").asText, node.path("kind").asText, node.path("meaning").asText)
  }.toSeq

  /** The rules, in the order in which findings of one severity are shown. */
  private[observed] val rules: Seq[Rule] = root.path("rules").elements.asScala.map { node =>
    Rule(
      node.path("code").asText, node.path("severity").asText, node.path("subject").asText, node.path("field").asText,
      node.path("unit").asText, node.path("sentence").asText, node.path("remedy").asText, node.path("link").asText,
      node.path("above").asDouble, Json.text(node, "above_field"), node.path("times").asDouble(1),
      node.path("is_age").asBoolean)
  }.toSeq

  private def texts(node: JsonNode): Seq[String] = node.elements.asScala.map(_.asText).toSeq
}
