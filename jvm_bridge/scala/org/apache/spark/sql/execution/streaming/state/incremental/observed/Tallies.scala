package org.apache.spark.sql.execution.streaming.state.incremental.observed

import org.apache.spark.sql.execution.streaming.state.incremental.settings.Declarations

/**
 * Durations, counted by their length.
 *
 * @param counts how many there are of at most each of [[Histogram.Seconds]]
 */
private[observed] final case class Histogram(
    counts: IndexedSeq[Long] = Histogram.Seconds.map(_ => 0L), sumMs: Long = 0, count: Long = 0) {

  /** With one more. */
  def plus(ms: Long): Histogram = Histogram(
    counts.indices.map(place => counts(place) + (if (ms <= Histogram.Seconds(place) * 1000) 1 else 0)), sumMs + ms, count + 1)
}

private[observed] object Histogram {
  /** The upper bounds of the buckets, as the metrics are declared. */
  val Seconds: IndexedSeq[Double] = Model.metrics.find(_.buckets.nonEmpty).fold(IndexedSeq.empty[Double])(_.buckets.toIndexedSeq)
}

/**
 * Counters and histograms of a run by the names of their metrics and the value of their label, if they have one. Their
 * values never fall while the run lasts. Immutable.
 */
private[observed] final case class Tallies(
    counters: Map[(String, String), Long] = Map.empty, histograms: Map[(String, String), Histogram] = Map.empty) {

  /** With a merge that ended. */
  def merged(merge: MergeReport): Tallies =
    if (merge.failure.isDefined) counted("state_store_merge_failures_total", merge.kind, 1)
    else {
      val part = if (merge.kind == Declarations.fullMerge) "full" else "merge"
      counted("state_store_merges_total", merge.kind, 1)
        .measured("state_store_merge_duration_seconds", merge.kind, merge.tookMs)
        .counted("state_store_uploaded_bytes_total", part, merge.uploadedBytes)
    }

  /** With a commit. */
  def committed(commit: StoreReport): Tallies = {
    val counting = counted("state_store_uploaded_bytes_total", "delta", commit.deltaBytes)
      .measured("state_store_commit_duration_seconds", "", commit.writeMs + commit.storeMs)
    commit.restored.fold(counting) { restore =>
      counting.counted("state_store_restores_total", "", 1)
        .measured("state_store_restore_duration_seconds", "", restore.tookMs)
    }
  }

  private def counted(metric: String, label: String, by: Long): Tallies = {
    val of = (metric, label)
    copy(counters = counters.updated(of, counters.getOrElse(of, 0L) + by))
  }

  private def measured(metric: String, label: String, ms: Long): Tallies = {
    val of = (metric, label)
    copy(histograms = histograms.updated(of, histograms.getOrElse(of, Histogram()).plus(ms)))
  }
}
