package statestore.benchmark

import java.nio.file.{Files, Path}

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import org.apache.hadoop.conf.Configuration

/**
 * A case: several providers run the same sequence of steps. Within a step the providers take turns, segment by segment,
 * in an order that rotates; no provider works in the background while another is measured. A provider that fails or
 * returns other rows than the model leaves the case with an error event; the others continue.
 */
final class Case(node: JsonNode, work: Path, events: Events) {
  private val name = node.get("name").asText
  private val shape = Shape(node)
  private val model = new StoreModel
  private val planner = new Planner(model, shape.stores, node.path("seed").asLong(1))
  private val directory = work.resolve(name)
  private val storageRoot = node.path("storage").asText(
    directory.toUri.toString.replaceFirst("^file", node.path("scheme").asText("file")))
  private val hadoopConf = new Configuration()
  node.path("hadoop_conf").properties.forEach(option => hadoopConf.set(option.getKey, option.getValue.asText))
  private val heapBefore = Usage.heapBytesAfterGc()
  private val subjects = node.get("subjects").elements.asScala.toIndexedSeq.map { subject =>
    val local = Files.createDirectories(directory.resolve(subject.get("name").asText))
    new Subject(subject, local,
      s"${storageRoot.stripSuffix("/")}/${subject.get("name").asText}/checkpoint", hadoopConf, shape)
  }
  private val reads = new ReadSteps(shape, model, planner)
  private var version = 0
  private var turn = 0

  def run(): Unit = {
    forEach("start")(_.start())
    for (step <- node.get("steps").elements.asScala) {
      val label = step.path("label").asText(step.get("do").asText)
      step.get("do").asText match {
        case "load" => load(label, step.get("to").asLong, step.path("chunk_bytes").asLong(64L << 20))
        case "settle" => settle(label, step)
        case "batches" => batches(label, step)
        case "scan" => repeat(label, step)(subject => reads.scan(subject, step.path("uncommitted").asInt(0)))
        case "prefix" => prefix(label, step)
        case "first" => repeat(label, step)(subject => reads.first(subject, step.get("rows").asInt))
        case "restore" => restore(label, step)
        case "recover" => recover(label, step)
        case "verify" => forEach(label)(subject =>
            record(label, subject, "verify", reads.verify(subject): _*))
        case "storage" => forEach(label)(storage(label, _))
        case "memory" => forEach(label)(memory(label, _))
        case other => throw new IllegalArgumentException(s"unknown step '$other' in case '$name'")
      }
    }
    subjects.foreach(close)
    Directories.delete(directory)
  }

  private def load(label: String, to: Long, chunkBytes: Long): Unit = {
    val chunk = math.max(1L, chunkBytes / (shape.keys.rowBytes + shape.values.rowBytes))
    while (model.high < to) {
      version += 1
      val plans = planner.load(model.high, math.min(to, model.high + chunk), version)
      forEach(label) { subject =>
        val times = subject.run(plans)
        check(times.right, "a new key was there already")
        subject.maintain()
        subject.maintenance.drain()
        record(label, subject, "load",
          "wall_ms" -> times.wallNanos / 1e6, "keys" -> plans.map(_.touched.length).sum)
      }
    }
    forEach(label)(subject => subject.storage.look())
  }

  /**
   * Runs batches with maintenance after each, until no provider has written much more than the change in a number of
   * successive batches: merges that a load left over have ended then.
   */
  private def settle(label: String, step: JsonNode): Unit = {
    var (calm, left) = (0, step.get("rounds").asInt)
    while (calm < step.get("calm").asInt && left > 0) {
      version += 1
      left -= 1
      calm += 1
      val plans = Array(planner.batch("uniform", step.get("size").asInt, version))
      val rows = plans.flatten.map(_.touched.length).sum
      forEach(label) { subject =>
        val before = subject.storage.writtenBytes
        new TimedBatches(subject, plans, 1,
          (kind, fields) =>
            if (kind != "batch") record(label, subject, s"settled-$kind", fields: _*)
        ).run(look = true)
        val written = subject.storage.writtenBytes - before
        if (written > step.get("share").asLong * rows * (shape.keys.rowBytes + shape.values.rowBytes)) calm = 0
      }
    }
  }

  private def batches(label: String, step: JsonNode): Unit = {
    val warmups = step.path("warmup_segments").asInt(0)
    for (segment <- 0 until warmups + step.get("segments").asInt) {
      val plans = Array.fill(step.get("batches").asInt) {
        version += 1
        planner.batch(step.get("pattern").asText, step.get("size").asInt, version)
      }
      val every = step.path("maintenance_every").asInt(10)
      forEach(label) { subject =>
        new TimedBatches(subject, plans, every,
          (kind, fields) =>
            record(label, subject, kind,
              fields :+ ("warmup" -> (segment < warmups)): _*)
        ).run(step.path("look").asBoolean(true))
      }
    }
  }

  private def prefix(label: String, step: JsonNode): Unit = {
    val groups = Array.fill(step.get("scans").asInt)(planner.uniform(model.high / KeyLayout.Prefix.GroupSize))
    repeat(label, step)(subject => reads.prefix(subject, groups))
  }

  private def restore(label: String, step: JsonNode): Unit = {
    val fields = Restore.copyMillis(directory, model.size * (shape.keys.rowBytes + shape.values.rowBytes))
    val wipe = step.path("local").asText("absent") == "absent"
    val repetitions = step.path("repetitions").asInt(3)
    for (repetition <- 1 to repetitions) forEach(label) { subject =>
      val measured = Restore.measure(subject, shape, model, wipe, last = repetition == repetitions)
      record(label, subject, "restore", measured ++ fields: _*)
    }
    forEach(label)(subject => record(label, subject, "verify", reads.verify(subject): _*))
  }

  /**
   * Measures a batch on a fresh provider: the time that a query waits after it has lost an executor. With `ahead` only
   * stores that take keys before they are looked up are measured.
   */
  private def recover(label: String, step: JsonNode): Unit = {
    val wipe = step.path("local").asText("absent") == "absent"
    val ahead = step.path("ahead").asBoolean(false)
    for (_ <- 0 until step.path("repetitions").asInt(3)) {
      version += 1
      val plans = planner.batch("uniform", step.get("size").asInt, version)
      forEach(label) { subject =>
        subject.stop(wipe)
        val started = System.nanoTime()
        subject.start()
        val initialised = System.nanoTime()
        val times = subject.run(plans, ahead && subject.looksAhead)
        check(times.right, "the first batch after a restore")
        val init = initialised - started
        if (!ahead || subject.looksAhead) record(label, subject, "recover", "end_ms" -> (init + times.wallNanos) / 1e6,
          "open_ms" -> (init + times.openNanos) / 1e6, "rows_ms" -> times.rowsNanos / 1e6,
          "commit_ms" -> times.commitNanos / 1e6)
        subject.maintain()
        subject.maintenance.drain()
      }
    }
    forEach(label)(subject => record(label, subject, "verify", reads.verify(subject): _*))
  }

  private def repeat(label: String, step: JsonNode)(measure: Subject => Seq[(String, Any)]): Unit =
    for (_ <- 0 until step.path("repetitions").asInt(3)) forEach(label) { subject =>
      record(label, subject, step.get("do").asText, measure(subject): _*)
    }

  private def storage(label: String, subject: Subject): Unit = {
    subject.maintenance.drain()
    subject.storage.look()
    record(label, subject, "storage", "bytes" -> subject.storage.bytes, "files" -> subject.storage.files,
      "live_bytes" -> model.size * (shape.keys.rowBytes + shape.values.rowBytes), "keys" -> model.size)
  }

  private def memory(label: String, subject: Subject): Unit = {
    val heap = Usage.heapBytesAfterGc() - heapBefore - model.heapBytes
    val fields = Seq("heap_bytes" -> math.max(0L, heap), "keys" -> model.size,
      "reported_bytes" -> subject.reportedMemoryBytes) ++ Usage.resident() ++ Usage.handles()
    record(label, subject, "memory", fields: _*)
  }

  private def close(subject: Subject): Unit = {
    val before = Usage.heapBytesAfterGc()
    try subject.close()
    catch { case e: Throwable => fail("close", subject, e) }
    record("close", subject, "heap",
      "heap_bytes" -> (before - Usage.heapBytesAfterGc()), "keys" -> model.size)
  }

  private def check(right: Boolean, message: String): Unit =
    if (!right) throw new IllegalStateException(s"content differs from the model: $message")

  private def forEach(label: String)(work: Subject => Unit): Unit = {
    turn += 1
    for (place <- subjects.indices) {
      val subject = subjects((place + turn) % subjects.length)
      if (subject.failure.isEmpty)
        try work(subject)
        catch { case e: Throwable => fail(label, subject, e) }
    }
  }

  private def fail(label: String, subject: Subject, error: Throwable): Unit = {
    subject.failure = Some(error)
    record(label, subject, "error", Events.describe(error): _*)
  }

  private def record(label: String, subject: Subject, kind: String, fields: (String, Any)*): Unit =
    events.write(Seq("case" -> name, "label" -> label, "subject" -> subject.name, "kind" -> kind)
      ++ fields: _*)
}
