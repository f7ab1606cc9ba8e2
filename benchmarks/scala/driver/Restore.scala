package statestore.benchmark

import java.nio.file.{Files, Path, StandardCopyOption}

/** Time from the start of a task on a fresh provider instance to its first row. */
object Restore {

  /**
   * Closes the subject, plays a restart (with `wipe` on another machine) and opens its stores again at their
   * version.
   */
  def measure(subject: Subject, shape: Shape, model: Model, wipe: Boolean): Seq[(String, Any)] = {
    subject.stop(wipe)
    val cpu = (Usage.jvmCpuSeconds, Usage.childrenCpuSeconds)
    val wanted = StorePlan(Array(model.low), Array.emptyLongArray, 0, readOnly = true, 0L)
    val key = new BatchRows(wanted, shape.keys, shape.values).key(0)
    val started = System.nanoTime()
    subject.start()
    val initialised = System.nanoTime()
    val opened = subject.stores.map(_.open())
    val ready = System.nanoTime()
    val row = opened((model.low % shape.stores).toInt).get(key)
    val first = System.nanoTime()
    val right =
      if (row == null) model.versionOf(model.low) == 0 else row.getLong(0) == model.versionOf(model.low)
    opened.foreach(_.abort())
    val custom = opened.map(_.metrics.customMetrics.map { case (metric, value) => metric.name -> value })
    if (!right) throw new IllegalStateException("content differs from the model: first row after a restore")
    Seq("total_ms" -> (first - started) / 1e6, "init_ms" -> (initialised - started) / 1e6,
      "open_ms" -> (ready - initialised) / 1e6, "first_row_ms" -> (first - ready) / 1e6,
      "cpu_s" -> (Usage.jvmCpuSeconds - cpu._1 + Usage.childrenCpuSeconds - cpu._2), "custom" -> custom.head)
  }

  /** What copying the live bytes once takes on this machine: the yardstick of a restore. */
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
