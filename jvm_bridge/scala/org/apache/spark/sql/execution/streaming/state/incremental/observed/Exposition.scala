package org.apache.spark.sql.execution.streaming.state.incremental.observed

import com.fasterxml.jackson.databind.JsonNode

/**
 * The figures of one query that metrics are made of.
 *
 * @param query  its `Query`, `Totals` and what else is known of it, in one object
 * @param stores its `Store`s
 * @param groups its `Group`s
 * @param full   requests for full checkpoints that have ended, by outcome
 */
private[observed] final case class Figures(
    name: String, query: JsonNode, stores: Seq[JsonNode], groups: Seq[JsonNode], tallies: Tallies, full: Map[String, Long])

/** Writes the declared metrics as Prometheus' text format 0.0.4. */
private[observed] object Exposition {
  val ContentType = "text/plain; version=0.0.4; charset=utf-8"

  /** The exposition of some queries. */
  def of(queries: Seq[Figures]): String = Model.metrics.flatMap { metric =>
    val samples = queries.flatMap(samplesOf(metric, _))
    if (samples.isEmpty) Nil
    else Seq(s"# HELP ${metric.name} ${help(metric.meaning)}", s"# TYPE ${metric.name} ${metric.kind}") ++ samples
  }.map(_ + "\n").mkString

  private def samplesOf(metric: Metric, of: Figures): Seq[String] = (metric.kind, metric.field) match {
    case ("histogram", _) => of.tallies.histograms.toSeq.filter(_._1._1 == metric.name).sortBy(_._1._2).flatMap {
      case ((_, label), histogram) => buckets(metric, labels(metric, of, label), histogram)
    }
    case ("counter", None) => counters(metric, of).toSeq.sortBy(_._1).map { case (label, value) =>
      sample(metric.name, labels(metric, of, label), value.toDouble)
    }
    case (_, None) => Seq(sample(metric.name, ("query" -> of.name) +: metric.labels.map { label =>
      label -> Option(of.query.get(label)).fold("")(_.asText)
    }, 1))
    case (_, Some(field)) => metric.subject match {
      case "query" =>
        number(of.query, field).toSeq.map(value => sample(metric.name, labels(metric, of, ""), value * metric.scale))
      case "group" => of.groups.flatMap { group =>
        number(group, field).map(value => sample(metric.name, place(metric, of, group), value * metric.scale))
      }
      case _ => storeSamples(metric, of, field)
    }
  }

  /** The value of a gauge over all stores of a query; None if nobody knows it. */
  def overall(metric: Metric, of: Figures): Option[Double] = metric.field.flatMap { field =>
    val found = metric.subject match {
      case "query" => number(of.query, field)
      case "group" => of.groups.flatMap(number(_, field)).maxOption
      case _ => together(metric, of.stores.flatMap(number(_, field)))
    }
    found.map(_ * metric.scale)
  }

  private def together(metric: Metric, values: Seq[Double]): Option[Double] = metric.over match {
    case "sum" => Some(values.sum).filter(_ => values.nonEmpty)
    case "min" => values.minOption
    case _ => values.maxOption
  }

  private def storeSamples(metric: Metric, of: Figures, field: String): Seq[String] =
    if (of.stores.size <= Model.maxStores) of.stores.flatMap { store =>
      number(store, field).map(value => sample(metric.name, place(metric, of, store), value * metric.scale))
    }
    else of.stores.groupBy(one => (one.path("operator").asLong, one.path("store").asText)).toSeq.sortBy(_._1).flatMap {
      case (_, members) =>
        val labels = place(metric, of, members.head).filter(_._1 != "partition")
        together(metric, members.flatMap(number(_, field))).map(found => sample(metric.name, labels, found * metric.scale))
    }

  private def counters(metric: Metric, of: Figures): Map[String, Long] =
    if (metric.name == "state_store_full_checkpoint_requests_total") of.full
    else of.tallies.counters.collect { case ((metric.`name`, label), value) => label -> value }

  private def buckets(metric: Metric, labels: Seq[(String, String)], histogram: Histogram): Seq[String] = {
    val counts = Histogram.Seconds.zip(histogram.counts).map { case (limit, count) =>
      sample(s"${metric.name}_bucket", labels :+ ("le" -> shown(limit)), count.toDouble)
    }
    counts ++ Seq(
      sample(s"${metric.name}_bucket", labels :+ ("le" -> "+Inf"), histogram.count.toDouble),
      sample(s"${metric.name}_sum", labels, histogram.sumMs / 1000.0),
      sample(s"${metric.name}_count", labels, histogram.count.toDouble))
  }

  private def labels(metric: Metric, of: Figures, own: String): Seq[(String, String)] =
    ("query" -> of.name) +: metric.labels.take(1).map(_ -> own)

  private def place(metric: Metric, of: Figures, node: JsonNode): Seq[(String, String)] =
    Model.labels.getOrElse(metric.subject, Nil).map {
      case "query" => "query" -> of.name
      case name => name -> node.path(name).asText
    }

  private def sample(name: String, labels: Seq[(String, String)], value: Double): String = {
    val inner = labels.map { case (label, text) => s"""$label="${escaped(text)}"""" }.mkString(",")
    s"$name${if (inner.isEmpty) "" else s"{$inner}"} ${shown(value)}"
  }

  private def number(node: JsonNode, field: String): Option[Double] =
    Option(node.get(field)).filter(_.isNumber).map(_.asDouble)

  private def shown(value: Double): String =
    if (value == math.rint(value) && value.abs < 1e15) value.toLong.toString
    else new java.math.BigDecimal(value).setScale(6, java.math.RoundingMode.HALF_EVEN).stripTrailingZeros.toPlainString

  private def escaped(text: String): String = text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n")

  private def help(text: String): String = text.replace("\\", "\\\\").replace("\n", "\\n")
}
