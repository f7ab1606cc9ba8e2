package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.File
import java.nio.file.Files
import java.util.SplittableRandom

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.rocksdb.{
  BlockBasedTableConfig, BloomFilter, ChecksumType, CompressionType, IngestExternalFileOptions, Options, RocksDB
}

import org.apache.spark.sql.execution.streaming.state.incremental.base.BaseDirectory
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{Json, VersionId}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.StoreMemory
import org.apache.spark.sql.execution.streaming.state.incremental.transaction.{StateConf, StoreVersions, Transaction}

/**
 * The data plane alone, bytes in and out, without Spark's API, an agent or storage: the cost of a batch by phase.
 * Arguments are name=value:
 * - pattern: uniform, zipf, append, read, absent (gets of absent keys), scan, ordered, prefix, range (after a batch
 *   of changes, ordered scans of 100 rows each, for as many rows as there are keys)
 * - keys, batch, batches (the first third does not count), value (bytes), budget (MiB)
 * - start: memory (all keys were put since the start), base (all keys are in a compacted base, and none in memory)
 * - merge: number of batches after which a new base, made by ingestion, is offered; 0: never
 * - directory
 *
 * It prints one JSON object a line: what, and per batch or operation: cpu_ns (median over the batches of the thread's
 * CPU time), ns (elapsed), least_ns.
 */
object DataPlane {
  RocksDB.loadLibrary()

  def main(arguments: Array[String]): Unit = {
    val settings = Map("pattern" -> "uniform", "keys" -> "500000", "batch" -> "20000", "batches" -> "30",
      "value" -> "100",
      "budget" -> "256", "start" -> "base", "merge" -> "10", "directory" -> System.getProperty("java.io.tmpdir")) ++
      arguments.map(_.split("=", 2)).map(a => a(0) -> a(1))
    val directory = Files.createTempDirectory(new File(settings("directory")).toPath, "data-plane").toFile
    try new DataPlane(settings, directory).run()
    finally delete(directory)
  }

  def delete(file: File): Unit = {
    Option(file.listFiles).toSeq.flatten.foreach(delete)
    file.delete()
  }
}

final class DataPlane(settings: Map[String, String], directory: File) {
  private val keyCount = settings("keys").toInt
  private val batch = settings("batch").toInt
  private val rangeRows = 100
  private val random = new SplittableRandom(7)
  private val memory = new StoreMemory(settings("budget").toLong << 20)
  private val state = new StoreVersions(memory, StateConf(new File(directory, "spill")))
  private val threads = java.lang.management.ManagementFactory.getThreadMXBean
  private val times = mutable.LinkedHashMap.empty[String, mutable.ArrayBuffer[(Double, Double)]]
  private val deltas = mutable.ArrayBuffer.empty[File]
  private var basePath: File = _
  private var baseDeltas = 0
  private var keys = 0L
  private var appended = keyCount.toLong
  private lazy val zipf = new Zipf(keyCount, random)

  /**
   * Returns a key as Spark encodes a row of one string: null bits, offset and size, characters; before it the column
   * family.
   */
  private def key(n: Long): Array[Byte] = {
    val buffer = java.nio.ByteBuffer.allocate(2 + 8 + 8 + 16).order(java.nio.ByteOrder.LITTLE_ENDIAN)
    buffer.putShort(0).putLong(0).putInt(16).putInt(16)
    buffer.put(f"key-$n%012d".getBytes("US-ASCII")).array
  }

  /** Returns a key of a joined or windowed store: five rows have one prefix. */
  private def prefixed(n: Long): Array[Byte] = {
    val buffer = java.nio.ByteBuffer.allocate(2 + 4 + 24 + 8).order(java.nio.ByteOrder.LITTLE_ENDIAN)
    buffer.putShort(0).putInt(24).putLong(0).putInt(8).putInt(16).putLong(n / 5 * 0x9E3779B97F4A7C15L).putLong(n % 5)
    buffer.array
  }

  private def keyOf(n: Long): Array[Byte] = if (pattern == "prefix") prefixed(n) else key(n)

  private val pattern = settings("pattern")
  private val value = Array.tabulate[Byte](settings("value").toInt)(_.toByte)

  private def time[T](name: String, per: Int = 1)(action: => T): T = {
    val start = now()
    val result = action
    note(name, start, per)
    result
  }

  private def now(): (Long, Long) = (System.nanoTime, threads.getCurrentThreadCpuTime)

  private def note(name: String, start: (Long, Long), per: Int): Unit = {
    val end = now()
    val taken = ((end._1 - start._1).toDouble / per, (end._2 - start._2).toDouble / per)
    times.getOrElseUpdate(name, mutable.ArrayBuffer.empty) += taken
  }

  def run(): Unit = {
    load()
    val warm = settings("batches").toInt / 3
    for (i <- 0 until settings("batches").toInt) {
      if (i == warm) times.clear()
      step()
      val merge = settings("merge").toInt
      if (merge > 0 && (i + 1) % merge == 0) offer()
    }
    report()
    state.close()
  }

  private def load(): Unit = {
    val size = 100000
    var n = 0
    while (n < keyCount) {
      val transaction = state.tryBegin(state.newest, readOnly = false).get
      val end = math.min(n + size, keyCount)
      while (n < end) {
        transaction.put(keyOf(n), value)
        n += 1
      }
      commit(transaction)
      if (memory.usedBytes > memory.budgetBytes / 2) offer()
    }
    if (settings("start") == "base") {
      build(compact = true)
      state.reset(BaseDirectory(basePath.getPath, state.newest, keys, () => ()))
    }
    times.clear()
  }

  private def commit(transaction: Transaction): Unit = {
    val file = new File(directory, s"${deltas.size}.sst")
    keys = time("count")(transaction.keys)
    val version = VersionId(transaction.version.number + 1, Some("x"))
    val meta = Json.bytes(Json.obj("format" -> 1, "version" -> version.number, "id" -> version.id, "keys" -> keys))
    time("write")(transaction.writeDelta(file, meta))
    time("committed")(transaction.committed(version))
    deltas += file
  }

  private def build(compact: Boolean): Unit = {
    val path = new File(directory, s"base-${deltas.size}")
    val filter = new BloomFilter(10, false)
    val table = new BlockBasedTableConfig().setFormatVersion(5).setFilterPolicy(filter)
      .setChecksumType(ChecksumType.kCRC32c)
    val options = new Options().setCreateIfMissing(true).setDisableAutoCompactions(true).setTableFormatConfig(table)
      .setCompressionType(CompressionType.NO_COMPRESSION)
    val ingest = new IngestExternalFileOptions().setMoveFiles(false)
    if (basePath != null) {
      path.mkdir()
      basePath.listFiles.filter(f => f.getName != "LOCK" && !f.getName.startsWith("LOG")).foreach { f =>
        Files.copy(f.toPath, new File(path, f.getName).toPath)
      }
    }
    val db = RocksDB.open(options, path.getPath)
    deltas.drop(baseDeltas).foreach(delta => db.ingestExternalFile(Seq(delta.getPath).asJava, ingest))
    if (compact) db.compactRange()
    db.close()
    options.close()
    deltas.drop(baseDeltas).foreach(_.delete())
    baseDeltas = deltas.size
    basePath = path
  }

  private def offer(): Unit = {
    build(compact = baseDeltas % 100 < 10)
    val path = basePath
    state.offerBase(BaseDirectory(path.getPath, state.newest, keys, () => ()))
  }

  private def pick(): Long = pattern match {
    case "zipf" => zipf.next()
    case "append" =>
      appended += 1
      appended
    case "absent" => keyCount + 1000000000L + random.nextLong(1000000000L)
    case _ => random.nextLong(keyCount)
  }

  private def step(): Unit = {
    val picked = Array.fill(batch)(keyOf(pick()))
    val start = now()
    val transaction = time("open")(state.tryBegin(state.newest, readOnly = false).get)
    pattern match {
      case "scan" | "ordered" =>
        touch(transaction, picked)
        time("row", keyCount)(scanAll(transaction, pattern == "ordered"))
      case "range" =>
        touch(transaction, picked)
        time("range", keyCount / rangeRows)(ranges(transaction))
      case "prefix" => time("prefix", batch)(prefixes(transaction))
      case "read" | "absent" => time("get", batch)(picked.foreach(transaction.get))
      case "uniform" | "zipf" | "append" => time("get and put", batch)(touch(transaction, picked))
      case other => throw new IllegalArgumentException(s"unknown pattern '$other'")
    }
    commit(transaction)
    note("the whole batch", start, 1)
  }

  private def touch(transaction: Transaction, picked: Array[Array[Byte]]): Unit = {
    var i = 0
    while (i < picked.length) {
      transaction.get(picked(i))
      transaction.put(picked(i), value)
      i += 1
    }
  }

  private def scanAll(transaction: Transaction, ordered: Boolean): Unit = {
    val rows = transaction.scan(Array[Byte](0, 0), Array[Byte](0, 1), ordered)
    var n = 0L
    while (rows.advance()) n += 1
    if (n != keys) throw new AssertionError(s"$n rows, not $keys")
  }

  /** Scans ranges of a fixed number of keys, which begin at any key. */
  private def ranges(transaction: Transaction): Unit =
    for (_ <- 0 until keyCount / rangeRows) {
      val n = random.nextLong(keyCount - rangeRows)
      val rows = transaction.scan(key(n), key(n + rangeRows), ordered = true)
      var found = 0
      while (rows.advance()) found += 1
      rows.close()
      if (found != rangeRows) throw new AssertionError(s"$found rows of a range")
    }

  /** Scans the rows of prefixes and changes one row of each, as a session window does. */
  private def prefixes(transaction: Transaction): Unit = {
    var i = 0
    while (i < batch) {
      val n = random.nextLong(keyCount) / 5 * 5
      val from = prefixed(n).take(30)
      val until = from.clone()
      var last = until.length - 1
      while (until(last) == -1) last -= 1
      until(last) = (until(last) + 1).toByte
      val rows = transaction.scan(from, until, ordered = true)
      var found = 0
      while (rows.advance()) found += 1
      rows.close()
      if (found != 5) throw new AssertionError(s"$found rows of a prefix")
      transaction.put(prefixed(n + 2), value)
      i += 1
    }
  }

  private def report(): Unit = times.foreach { case (measure, values) =>
    val passed = values.map(_._1).sorted
    val cpu = values.map(_._2).sorted
    println("""{"what": "%s", "cpu_ns": %.1f, "ns": %.1f, "least_ns": %.1f}""".formatLocal(
      java.util.Locale.ROOT, measure, cpu(cpu.size / 2), passed(passed.size / 2), passed.head))
  }
}

/** Numbers below n, the k-th with a probability proportional to 1/k, spread over the range. */
final class Zipf(n: Int, random: SplittableRandom) {
  private val sums = {
    var sum = 0.0
    Array.tabulate(n) { k =>
      sum += 1.0 / (k + 1)
      sum
    }
  }

  def next(): Long = {
    val found = java.util.Arrays.binarySearch(sums, random.nextDouble() * sums(n - 1))
    val rank = if (found < 0) -found - 1 else found
    rank.toLong * 2654435761L % n
  }
}
