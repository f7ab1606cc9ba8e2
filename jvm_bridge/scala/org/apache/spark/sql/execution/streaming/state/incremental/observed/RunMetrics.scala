package org.apache.spark.sql.execution.streaming.state.incremental.observed

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.incremental.settings.Declarations

/**
 * Durations, counted by their length.
 *
 * @param counts numbers of durations of at most each of [[Histogram.Seconds]]
 */
private[observed] final case class Histogram(counts: Seq[Long], sumMs: Long, count: Long)

private[observed] object Histogram {
  /** The upper bounds of the buckets, as the metrics are declared. */
  val Seconds: IndexedSeq[Double] =
    Model.metrics.find(_.buckets.nonEmpty).fold(IndexedSeq.empty[Double])(_.buckets.toIndexedSeq)
}

/**
 * Counters and histograms of a run by the names of their metrics and the value of their label, if they have one.
 * Immutable.
 */
private[observed] final case class MetricValues(
    counters: Map[(String, String), Long] = Map.empty, histograms: Map[(String, String), Histogram] = Map.empty)

/** Counts the events of a run; values never fall. The caller locks. */
private[observed] final class RunMetrics {
  private val counters = mutable.Map.empty[(String, String), Long]
  private val histograms = mutable.Map.empty[(String, String), Durations]

  // Present from the beginning, so that an increase from 0 is seen.
  Seq("state_store_damaged_files_total", "state_store_agent_restarts_total", "state_store_restores_total",
    "state_store_moved_total")
    .foreach(count(_, "", 0))
  Seq("state_store_merges_total", "state_store_merge_failures_total")
    .foreach(metric => Declarations.mergeKinds.foreach(count(metric, _, 0)))

  /** Returns the values so far. */
  def now: MetricValues = MetricValues(counters.toMap, histograms.view.mapValues(_.now).toMap)

  /** Counts a merge that has ended. */
  def merged(merge: MergeReport): Unit =
    if (merge.failure.isDefined) count("state_store_merge_failures_total", merge.kind, 1)
    else {
      val part = if (merge.kind == Declarations.fullMerge) "full" else "merge"
      count("state_store_merges_total", merge.kind, 1)
      measure("state_store_merge_duration_seconds", merge.kind, merge.tookMs)
      count("state_store_uploaded_bytes_total", part, merge.uploadedBytes)
    }

  /**
   * Counts a commit of a store.
   *
   * @param damaged  number of files that were found damaged since its commit before
   * @param restarts number of times that the agent of its executor was started again since then
   * @param hasMoved true if another executor made its commit before
   */
  def committed(commit: StoreReport, damaged: Long, restarts: Long, hasMoved: Boolean): Unit = {
    if (hasMoved) count("state_store_moved_total", "", 1)
    count("state_store_uploaded_bytes_total", "delta", commit.deltaBytes)
    measure("state_store_commit_duration_seconds", "", commit.writeMs + commit.storeMs)
    if (damaged > 0) count("state_store_damaged_files_total", "", damaged)
    if (restarts > 0) count("state_store_agent_restarts_total", "", restarts)
    commit.restored.foreach { restore =>
      count("state_store_restores_total", "", 1)
      measure("state_store_restore_duration_seconds", "", restore.tookMs)
    }
  }

  private def count(metric: String, label: String, by: Long): Unit = {
    val key = (metric, label)
    counters.update(key, counters.getOrElse(key, 0L) + by)
  }

  private def measure(metric: String, label: String, ms: Long): Unit =
    histograms.getOrElseUpdate((metric, label), new Durations).add(ms)
}

/** A histogram that grows. */
private final class Durations {
  private val limitsMs = Histogram.Seconds.map(_ * 1000).toArray
  private val counts = new Array[Long](limitsMs.length)
  private var sumMs, count = 0L

  def add(ms: Long): Unit = {
    var place = limitsMs.length - 1
    while (place >= 0 && ms <= limitsMs(place)) {
      counts(place) += 1
      place -= 1
    }
    sumMs += ms
    count += 1
  }

  def now: Histogram = Histogram(counts.toSeq, sumMs, count)
}
