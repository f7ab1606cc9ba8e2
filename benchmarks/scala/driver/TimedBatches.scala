package statestore.benchmark

/**
 * Consecutive batches of one subject with all of their background maintenance: the segment ends when the maintenance
 * has ended. Emits an event "batch" for each batch and one event "segment".
 *
 * @param every number of batches after which a round of maintenance starts, 0 for none
 * @param emit takes the kind of an event and its fields
 */
final class TimedBatches(
    subject: Subject, plans: Array[Array[StorePlan]], every: Int,
    emit: (String, Seq[(String, Any)]) => Unit) {

  private var ownSeconds = 0.0 // CPU time of the driver for plans, rows and listings

  def run(look: Boolean): Unit = {
    subject.takeCustomMetrics()
    val writtenBefore = (subject.storage.writtenBytes, subject.storage.writtenFiles)
    val (jvm, children, wall) = (Usage.jvmCpuSeconds, Usage.childrenCpuSeconds, System.nanoTime())
    for (batch <- plans.indices) {
      val overlapped = aside(subject.maintenance.isRunning)
      val times = subject.run(plans(batch))
      report(plans(batch), times, overlapped)
      if (every > 0 && (batch + 1) % every == 0) subject.maintain()
      if (look) aside(subject.storage.look())
    }
    val drain = System.nanoTime()
    subject.maintenance.drain()
    val (ended, jvmAfter) = (System.nanoTime(), Usage.jvmCpuSeconds)
    val childrenAfter = Usage.childrenCpuSeconds
    subject.storage.look()
    emit("segment",
      Seq(
        "batches" -> plans.length,
        "wall_ms" -> (ended - wall) / 1e6,
        "drain_ms" -> (ended - drain) / 1e6,
        "cpu_jvm_s" -> (jvmAfter - jvm - ownSeconds),
        "cpu_children_s" -> (childrenAfter - children),
        "written_bytes" -> (subject.storage.writtenBytes - writtenBefore._1),
        "written_files" -> (subject.storage.writtenFiles - writtenBefore._2),
        "storage_bytes" -> subject.storage.bytes,
        "storage_files" -> subject.storage.files,
        "reported_bytes" -> subject.reportedMemoryBytes,
        "reported_keys" -> subject.reportedKeys,
        "resident" -> Usage.resident(),
        "custom" -> subject.takeCustomMetrics()))
    subject.maintenance.takeFailures().foreach { e =>
      emit("maintenance-error", Events.describe(e))
    }
  }

  private def report(plan: Array[StorePlan], times: BatchTimes, overlapped: Boolean): Unit = {
    if (!times.right) throw new IllegalStateException(
      s"content differs from the model: wrong values in batch ${plan.head.version}")
    emit("batch",
      Seq(
        "version" -> plan.head.version,
        "operations" -> plan.map(p => p.touched.length + p.removed.length).sum,
        "distinct" -> plan.map(_.touched.distinct.length).sum,
        "wall_ms" -> times.wallNanos / 1e6,
        "open_ms" -> times.openNanos / 1e6,
        "rows_ms" -> times.rowsNanos / 1e6,
        "commit_ms" -> times.commitNanos / 1e6,
        "metrics_ms" -> times.metricsNanos / 1e6,
        "overlapped" -> overlapped))
  }

  private def aside[T](work: => T): T = {
    val before = Usage.threadCpuSeconds
    try work
    finally ownSeconds += Usage.threadCpuSeconds - before
  }
}
