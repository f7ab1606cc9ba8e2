package statestore.benchmark

import java.nio.file.{Files, Path, StandardCopyOption}

import org.apache.spark.sql.execution.streaming.state.StateStore

/** The time from the start of a task on a fresh provider instance to its first row. */
object Restore {

  /**
   * Closes the subject, restarts it (with `wipe` as on another machine) and opens its stores again at their version. It
   * aborts the open stores, and commits them the `last` time, since only a commit reports metrics.
   */
  def measure(
      subject: Subject, shape: Shape, model: StoreModel, wipe: Boolean, last: Boolean): Seq[(String, Any)] = {
    subject.stop(wipe)
    val wanted = StorePlan(Array(model.low), Array.emptyLongArray, 0, readOnly = true, 0L)
    val key = new BatchRows(wanted, shape.keys, shape.values).key(0)
    val cpu = Usage.jvmCpuSeconds + Usage.childrenCpuSeconds
    val started = System.nanoTime()
    subject.start()
    val initialised = System.nanoTime()
    val opened = subject.stores.map(_.open())
    val ready = System.nanoTime()
    val row = opened((model.low % shape.stores).toInt).get(key)
    val first = System.nanoTime()
    val used = Usage.jvmCpuSeconds + Usage.childrenCpuSeconds - cpu
    val found = if (row == null) 0L else row.getLong(0)
    val custom = if (last) Seq("custom" -> commit(subject, opened)) else abort(opened)
    if (found != model.versionOf(model.low))
      throw new IllegalStateException("content differs from the model: first row after a restore")
    custom ++ Seq("total_ms" -> (first - started) / 1e6, "init_ms" -> (initialised - started) / 1e6,
      "open_ms" -> (ready - initialised) / 1e6, "first_row_ms" -> (first - ready) / 1e6, "cpu_s" -> used)
  }

  private def commit(subject: Subject, opened: Seq[StateStore]): Map[String, Long] = {
    subject.stores.zip(opened).foreach { case (handle, store) => handle.commit(store) }
    opened.head.metrics.customMetrics.map { case (metric, value) => metric.name -> value }
  }

  private def abort(opened: Seq[StateStore]): Seq[(String, Any)] = {
    opened.foreach(_.abort())
    Nil
  }

  /** Measures a copy of the live bytes on this machine, with which restores are compared. */
  def copyMillis(directory: Path, bytes: Long): Seq[(String, Any)] = {
    val source = directory.resolve("live-bytes")
    val block = new Array[Byte](1 << 20)
    new scala.util.Random(1).nextBytes(block)
    val out = Files.newOutputStream(source)
    try {
      var left = bytes
      while (left > 0) {
        out.write(block, 0, math.min(left, block.length.toLong).toInt)
        left -= block.length
      }
    } finally out.close()
    val target = directory.resolve("live-bytes-copy")
    val times = (1 to 3).map { _ =>
      val started = System.nanoTime()
      Files.copy(source, target, StandardCopyOption.REPLACE_EXISTING)
      System.nanoTime() - started
    }.sorted
    Files.delete(source)
    Files.delete(target)
    Seq("live_bytes" -> bytes, "copy_ms" -> times(1) / 1e6)
  }
}
