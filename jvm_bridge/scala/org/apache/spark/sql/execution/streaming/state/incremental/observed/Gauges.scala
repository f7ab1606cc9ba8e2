package org.apache.spark.sql.execution.streaming.state.incremental.observed

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.TimeUnit

import com.codahale.metrics.{Gauge, MetricRegistry}

import org.apache.spark.metrics.source.Source

/**
 * The declared gauges in Spark's own metrics system, for all sinks that are configured there: one for each metric and
 * running query, over all its stores. Figures are put together when a sink asks, at most once a second. Safe for any
 * thread.
 *
 * @param figures the figures of a run; None if the run is not known any more
 */
private[observed] final class Gauges(figures: String => Option[Figures]) extends Source {
  override val sourceName: String = "stateStore"
  override val metricRegistry: MetricRegistry = new MetricRegistry

  private val runs = new ConcurrentHashMap[String, String]
  private val values = new ConcurrentHashMap[String, (Long, Map[String, Double])]

  /** The run has committed a batch: its gauges are there from the first on. */
  def committed(facts: QueryFacts): Unit = {
    val query = nameOf(facts)
    if (runs.put(query, facts.run) == null) Gauges.metrics.foreach { metric =>
      metricRegistry.register(nameOf(query, metric), new Gauge[Double] {
        // A sink may print a gauge without a value as "null", which no program reads.
        override def getValue: Double = valuesOf(query).getOrElse(metric.name, Double.NaN)
      })
    }
  }

  /** The run has ended: its gauges go, unless the query was started again meanwhile. */
  def ended(facts: QueryFacts): Unit = {
    val query = nameOf(facts)
    if (runs.remove(query, facts.run)) {
      values.remove(query)
      Gauges.metrics.foreach(metric => metricRegistry.remove(nameOf(query, metric)))
    }
  }

  private def valuesOf(query: String): Map[String, Double] = {
    val now = System.nanoTime
    Option(values.get(query)).filter(now - _._1 < Gauges.FreshNs).fold {
      val found = Option(runs.get(query)).flatMap(figures).fold(Map.empty[String, Double]) { of =>
        Gauges.metrics.flatMap(metric => Exposition.overall(metric, of).map(metric.name -> _)).toMap
      }
      values.put(query, now -> found)
      found
    }(_._2)
  }

  private def nameOf(facts: QueryFacts): String =
    facts.name.getOrElse(facts.id).map(c => if (c < 128 && c.isLetterOrDigit || c == '-') c else '_').take(100)

  private def nameOf(query: String, metric: Metric): String =
    MetricRegistry.name(query, metric.name.stripPrefix("state_store_"))
}

private object Gauges {
  private val FreshNs = TimeUnit.SECONDS.toNanos(1)

  // Executors are asked for the merges that run and wait: no sink is to wait for their answers.
  private val Asked = Set("merges_waiting", "merges_running")

  private val metrics: Seq[Metric] =
    Model.metrics.filter(metric => metric.kind == "gauge" && metric.field.exists(field => !Asked(field)))
}
