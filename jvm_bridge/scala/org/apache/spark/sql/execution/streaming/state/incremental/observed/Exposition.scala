package org.apache.spark.sql.execution.streaming.state.incremental.observed

import java.util.concurrent.{ConcurrentHashMap, TimeUnit}

import scala.collection.mutable

import com.codahale.metrics.{Gauge, MetricRegistry}
import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.metrics.source.Source

/**
 * The figures of one query from which metrics are made.
 *
 * @param query  the fields of its `Query` and `Totals`, and its other figures, in one object
 * @param stores its `Store`s
 * @param groups its `Group`s
 * @param full   numbers of requests for full checkpoints that have ended, by outcome
 */
private[observed] final case class Figures(
    name: String,
    query: JsonNode,
    stores: Seq[JsonNode],
    groups: Seq[JsonNode],
    metricValues: MetricValues,
    full: Map[String, Long])

/** Writes the declared metrics as Prometheus' text format 0.0.4. */
private[observed] object Exposition {
  val ContentType = "text/plain; version=0.0.4; charset=utf-8"

  /** Writes the metrics of some queries. */
  def of(queries: Seq[Figures]): String = Model.metrics.flatMap { metric =>
    val samples = queries.flatMap(samplesOf(metric, _))
    if (samples.isEmpty) Nil
    else Seq(s"# HELP ${metric.name} ${help(metric.meaning)}", s"# TYPE ${metric.name} ${metric.kind}") ++ samples
  }.map(_ + "\n").mkString

  private def samplesOf(metric: Metric, figures: Figures): Seq[String] = (metric.kind, metric.field) match {
    case ("histogram", _) =>
      figures.metricValues.histograms.toSeq.filter(_._1._1 == metric.name).sortBy(_._1._2).flatMap {
        case ((_, label), histogram) => buckets(metric, labels(metric, figures, label), histogram)
      }
    case ("counter", None) => counters(metric, figures).toSeq.sortBy(_._1).map { case (label, value) =>
        sample(metric.name, labels(metric, figures, label), value.toDouble)
      }
    case (_, None) => Seq(sample(metric.name,
        ("query" -> figures.name) +: metric.labels.map { label =>
          label -> Option(figures.query.get(label)).fold("")(_.asText)
        },
        1))
    case (_, Some(field)) => metric.subject match {
        case "query" =>
          number(figures.query, field).toSeq
            .map(value => sample(metric.name, labels(metric, figures, ""), value * metric.scale))
        case "group" => figures.groups.flatMap { group =>
            number(group, field).map(value => sample(metric.name, place(metric, figures, group), value * metric.scale))
          }
        case _ => storeSamples(metric, figures, field)
      }
  }

  /** Returns the value of a gauge over all stores of a query; None if it is not known. */
  def overall(metric: Metric, figures: Figures): Option[Double] = metric.field.flatMap { field =>
    val values = metric.subject match {
      case "query" => number(figures.query, field)
      case "group" => figures.groups.flatMap(number(_, field)).maxOption
      case _ => together(metric, figures.stores.flatMap(number(_, field)))
    }
    values.map(_ * metric.scale)
  }

  private def together(metric: Metric, values: Seq[Double]): Option[Double] = metric.over match {
    case "sum" => Some(values.sum).filter(_ => values.nonEmpty)
    case "min" => values.minOption
    case _ => values.maxOption
  }

  private def storeSamples(metric: Metric, figures: Figures, field: String): Seq[String] =
    if (figures.stores.size <= Model.maxStores) figures.stores.flatMap { store =>
      number(store, field).map(value => sample(metric.name, place(metric, figures, store), value * metric.scale))
    }
    else Verdict.membersOf(figures.stores).flatMap { case (_, members) =>
      val labels = place(metric, figures, members.head).filter(_._1 != "partition")
      together(metric, members.flatMap(number(_, field)))
        .map(found => sample(metric.name, labels, found * metric.scale))
    }

  private def counters(metric: Metric, figures: Figures): Map[String, Long] =
    if (metric.name == "state_store_full_checkpoint_requests_total") figures.full
    else figures.metricValues.counters.collect { case ((metric.`name`, label), value) => label -> value }

  private def buckets(metric: Metric, labels: Seq[(String, String)], histogram: Histogram): Seq[String] = {
    val counts = Histogram.Seconds.zip(histogram.counts).map { case (limit, count) =>
      sample(s"${metric.name}_bucket", labels :+ ("le" -> shown(limit)), count.toDouble)
    }
    counts ++ Seq(
      sample(s"${metric.name}_bucket", labels :+ ("le" -> "+Inf"), histogram.count.toDouble),
      sample(s"${metric.name}_sum", labels, histogram.sumMs / 1000.0),
      sample(s"${metric.name}_count", labels, histogram.count.toDouble))
  }

  private def labels(metric: Metric, figures: Figures, own: String): Seq[(String, String)] =
    ("query" -> figures.name) +: metric.labels.take(1).map(_ -> own)

  private def place(metric: Metric, figures: Figures, node: JsonNode): Seq[(String, String)] =
    Model.labels.getOrElse(metric.subject, Nil).map {
      case "query" => "query" -> figures.name
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

/**
 * The declared gauges in Spark's own metrics system, for all sinks that are configured for it: one for each metric and
 * running query, over all its stores. Figures are computed when a sink asks, at most once a second. Safe for any
 * thread.
 *
 * @param figures returns the figures of a run; None if the run is not known any more
 */
private[observed] final class Gauges(figures: String => Option[Figures]) extends Source {
  override val sourceName: String = "stateStore"
  override val metricRegistry: MetricRegistry = new MetricRegistry

  // The names under which queries are registered, by their ids, and the run of each name.
  private val names = mutable.Map.empty[String, String]
  private val runs = new ConcurrentHashMap[String, String]
  private val over = mutable.LinkedHashSet.empty[String]
  private val values = new ConcurrentHashMap[String, (Long, Map[String, Double])]

  /**
   * Registers the gauges of a run that has committed its first batch; no more if it has ended. A query whose name looks
   * like that of another one is named by its id, too.
   */
  def committed(facts: QueryFacts): Unit = synchronized {
    if (!over(facts.run)) {
      val query = names.getOrElseUpdate(facts.id, freeName(facts))
      if (runs.put(query, facts.run) == null) Gauges.metrics.foreach { metric =>
        metricRegistry.register(nameOf(query, metric),
          new Gauge[Double] {
            // A sink may print a gauge without a value as "null", which no program reads.
            override def getValue: Double = valuesOf(query).getOrElse(metric.name, Double.NaN)
          })
      }
    }
  }

  /** Removes the gauges of a run that has ended, unless the query was started again meanwhile. */
  def ended(facts: QueryFacts): Unit = synchronized {
    over += facts.run
    if (over.size > Gauges.MaxOver) over -= over.head
    names.get(facts.id).filter(runs.remove(_, facts.run)).foreach { query =>
      names -= facts.id
      values.remove(query)
      Gauges.metrics.foreach(metric => metricRegistry.remove(nameOf(query, metric)))
    }
  }

  private def valuesOf(query: String): Map[String, Double] = {
    val now = System.nanoTime
    Option(values.get(query)).filter(now - _._1 < Gauges.FreshNs).fold {
      val gauges = Option(runs.get(query)).flatMap(figures).fold(Map.empty[String, Double]) { current =>
        Gauges.metrics.flatMap(metric => Exposition.overall(metric, current).map(metric.name -> _)).toMap
      }
      values.put(query, now -> gauges)
      gauges
    }(_._2)
  }

  private def freeName(facts: QueryFacts): String = {
    val name = plain(facts.name.getOrElse(facts.id))
    if (names.valuesIterator.contains(name)) s"${name}_${plain(facts.id)}" else name
  }

  private def plain(name: String): String =
    name.map(c => if (c < 128 && c.isLetterOrDigit || c == '-') c else '_').take(100)

  private def nameOf(query: String, metric: Metric): String =
    MetricRegistry.name(query, metric.name.stripPrefix("state_store_"))
}

private object Gauges {
  private val FreshNs = TimeUnit.SECONDS.toNanos(1)

  /** The number of runs that have ended and are remembered: reports of theirs may still be on their way. */
  private val MaxOver = 1000

  // The executors know the merges that run and wait: no sink may wait for their answers.
  private val Asked = Set("merges_waiting", "merges_running")

  private val metrics: Seq[Metric] =
    Model.metrics.filter(metric => metric.kind == "gauge" && metric.field.exists(field => !Asked(field)))
}
