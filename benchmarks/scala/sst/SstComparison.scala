package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.{File, PrintStream}
import java.nio.ByteBuffer
import java.nio.file.Files
import java.util.SplittableRandom

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.rocksdb._

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{Json, Reserved, VersionId}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{
  Arena, Bytes, KeyHash, OffHeap, Record, SortedRuns, StoreMemory
}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.{Cursor, DeltaWriter, OverwrittenChanges}
import org.apache.spark.unsafe.Platform

/**
 * A comparison of this store's own SST reader and writer with RocksDB's through JNI: the same rows and keys, in turns
 * in one JVM. It fails if the answers differ. Arguments are name=value: keys, value (bytes), changed (keys that each
 * delta of the base "restored" changes), deltas (their number), operations (a turn), turns, warm (turns that do not
 * count), writes (sizes of deltas, separated by commas), directory. It prints one JSON object a line: what, subject,
 * and per row or operation: cpu_ns (median over the turns of the thread's CPU time, which other work on the machine
 * disturbs least), ns (elapsed), least_ns.
 */
object SstComparison {
  RocksDB.loadLibrary()

  def main(arguments: Array[String]): Unit = {
    val settings = Map("keys" -> "500000", "value" -> "100", "changed" -> "5000", "deltas" -> "20",
      "operations" -> "50000",
      "turns" -> "9", "warm" -> "3", "writes" -> "1000,20000,100000",
      "directory" -> System.getProperty("java.io.tmpdir")) ++
      arguments.map(_.split("=", 2)).map(a => a(0) -> a(1))
    val directory = Files.createTempDirectory(new File(settings("directory")).toPath, "sst-comparison").toFile
    try {
      val times = new TurnTimes(settings("turns").toInt, settings("warm").toInt)
      new SstWriting(settings, directory, times).run()
      new SstReading(settings, directory, times).run()
      times.print(System.out)
    } finally delete(directory)
  }

  def delete(file: File): Unit = {
    Option(file.listFiles).toSeq.flatten.foreach(delete)
    file.delete()
  }

  /**
   * Returns a key as Spark encodes a row of one string, after the column family: null bits, offset and size,
   * characters.
   */
  def key(n: Long): Array[Byte] = {
    val buffer = ByteBuffer.allocate(2 + 8 + 8 + 16).order(java.nio.ByteOrder.LITTLE_ENDIAN)
    buffer.putShort(0).putLong(0).putInt(16).putInt(16)
    buffer.put(f"key-$n%012d".getBytes("US-ASCII")).array
  }

  def value(n: Long, bytes: Int): Array[Byte] = {
    val value = new Array[Byte](bytes)
    new java.util.Random(n).nextBytes(value)
    value
  }

  def tableOptions(filter: BloomFilter): BlockBasedTableConfig =
    new BlockBasedTableConfig().setFormatVersion(5).setFilterPolicy(filter).setChecksumType(ChecksumType.kCRC32c)
}

/** The times of subjects that take turns. Their answers must be equal. */
final class TurnTimes(turns: Int, warm: Int) {
  private val times = mutable.LinkedHashMap.empty[(String, String), mutable.ArrayBuffer[(Double, Double)]]
  private val threads = java.lang.management.ManagementFactory.getThreadMXBean

  /**
   * Runs each subject once a turn.
   *
   * @param per number of operations of a run
   * @param subjects name and run of each; the runs return the same number
   */
  def compare(measure: String, per: Int, subjects: Seq[(String, () => Long)]): Unit =
    for (turn <- 0 until turns + warm) {
      val answers = subjects.map { case (name, action) =>
        val start = System.nanoTime
        val startCpu = threads.getCurrentThreadCpuTime
        val answer = action()
        val cpu = threads.getCurrentThreadCpuTime - startCpu
        if (turn >= warm) note(measure, name, (System.nanoTime - start).toDouble / per, cpu.toDouble / per)
        name -> answer
      }
      if (answers.map(_._2).distinct.size > 1) throw new AssertionError(s"$measure: the answers differ: $answers")
    }

  private def note(measure: String, name: String, ns: Double, cpuNs: Double): Unit =
    times.getOrElseUpdate((measure, name), mutable.ArrayBuffer.empty) += ns -> cpuNs

  def print(out: PrintStream): Unit = times.foreach { case ((measure, name), values) =>
    val passed = values.map(_._1).sorted
    val cpu = values.map(_._2).sorted
    out.println(("""{"what": "%s", "subject": "%s", "cpu_ns": %.1f, "ns": %.1f, "least_ns": %.1f}""").formatLocal(
      java.util.Locale.ROOT, measure, name, cpu(cpu.size / 2), passed(passed.size / 2), passed.head))
  }
}

/** Look-ups and scans of a base of one sorted run, and of a base with deltas above it, as a restore leaves it. */
final class SstReading(settings: Map[String, String], directory: File, times: TurnTimes) {
  import SstComparison.{key, tableOptions, value}

  private val keys = settings("keys").toInt
  private val operations = settings("operations").toInt
  private val filter = new BloomFilter(10, false)

  def run(): Unit = {
    compare("compacted", build("compacted", deltas = 0))
    compare("restored", build("restored", settings("deltas").toInt))
    compare("LZ4", build("lz4", deltas = 0, CompressionType.LZ4_COMPRESSION))
  }

  private def build(
      name: String,
      deltas: Int,
      compression: CompressionType = CompressionType.NO_COMPRESSION): File = {
    val path = new File(directory, name)
    val options = new Options().setCreateIfMissing(true).setDisableAutoCompactions(true).setTargetFileSizeBase(8L << 20)
      .setCompressionType(compression).setTableFormatConfig(tableOptions(filter))
    val db = RocksDB.open(options, path.getPath)
    val repeats = if (compression == CompressionType.NO_COMPRESSION) 1 else 4
    ingest(db, write(s"$name-0", 0 until keys, 0, repeats))
    rewrite(db)
    val random = new SplittableRandom(5)
    for (delta <- 1 to deltas) {
      val changed = Seq.fill(settings("changed").toInt)(random.nextInt(keys)).distinct.sorted
      ingest(db, write(s"$name-$delta", changed, delta))
    }
    db.close()
    options.close()
    path
  }

  /** @param repeats number of times that the bytes of a value are repeated, so that it can be compressed */
  private def write(name: String, numbers: Seq[Int], round: Int, repeats: Int = 1): File = {
    val file = new File(directory, s"$name.sst")
    val options =
      new Options().setCompressionType(CompressionType.NO_COMPRESSION).setTableFormatConfig(tableOptions(filter))
    val environment = new EnvOptions
    val writer = new SstFileWriter(environment, options)
    writer.open(file.getPath)
    numbers.foreach { n =>
      val part = value(n + round.toLong * keys, settings("value").toInt / repeats)
      writer.put(key(n), Array.fill(repeats)(part).flatten)
    }
    writer.put(Reserved.metaKey, Json.bytes(Json.obj("format" -> 1, "version" -> 1, "keys" -> keys)))
    writer.finish()
    Seq(writer, environment, options).foreach(_.close())
    file
  }

  private def rewrite(db: RocksDB): Unit = {
    val all =
      new CompactRangeOptions().setBottommostLevelCompaction(CompactRangeOptions.BottommostLevelCompaction.kForce)
    db.compactRange(db.getDefaultColumnFamily, null, null, all)
    all.close()
  }

  private def ingest(db: RocksDB, file: File): Unit = {
    val options = new IngestExternalFileOptions().setMoveFiles(true)
    db.ingestExternalFile(Seq(file.getPath).asJava, options)
    options.close()
  }

  private def compare(name: String, path: File): Unit = {
    val base = open(path)
    val asUsed = new RocksSubject(path, filter, cacheBytes = 64L << 20)
    val cached = new RocksSubject(path, filter, cacheBytes = 2L << 30, verify = false)
    val mapped = new RocksSubject(path, filter, cacheBytes = 8L << 20, verify = false, mapped = true)
    val readers = Seq("own" -> new OwnReader(base.reader()), "RocksDB, 64 MiB of cache" -> asUsed.reader,
      "RocksDB, all in the cache" -> cached.reader, "RocksDB, mapped" -> mapped.reader)
    val random = new SplittableRandom(3)
    val hits = Array.fill(operations)(key(random.nextInt(keys)))
    val misses = Array.fill(operations)(key(random.nextInt(keys)))
    misses.foreach(absent => absent(absent.length - 1) = 'x') // between present keys in key order
    def each(action: Rows => Long) = readers.map { case (subject, reader) => subject -> (() => action(reader)) }
    times.compare(s"$name: point hit", operations, each(gets(_, hits)))
    times.compare(s"$name: point miss", operations, each(gets(_, misses)))
    times.compare(s"$name: row of a full scan", keys, each(scan(_, Array.emptyByteArray, Int.MaxValue)))
    times.compare(s"$name: first point hits after opening", operations,
      Seq(
        "own" -> (() => first(path)(gets(_, hits))), "own, verified" -> (() => gets(readers.head._2, hits))))
    times.compare(s"$name: row of the first full scan after opening", keys,
      Seq(
        "own" -> (() => first(path)(scan(_, Array.emptyByteArray, Int.MaxValue))),
        "own, verified" -> (() => scan(readers.head._2, Array.emptyByteArray, Int.MaxValue))))
    val starts = hits.take(operations / 50)
    times.compare(s"$name: scan of 100 rows", starts.length, each(reader => starts.map(scan(reader, _, 100)).sum))
    readers.foreach(_._2.close())
    Seq(asUsed, cached, mapped).foreach(_.close())
    base.release()
  }

  private def open(path: File): Base =
    Base.open(BaseDirectory(path.getPath, VersionId(1, None), keys, () => ()), new StoreMemory(512L << 20))

  /**
   * Runs an action on a base that was just opened, so that each block is verified as it is read. Opening it is
   * measured, too.
   */
  private def first(path: File)(action: Rows => Long): Long = {
    val base = open(path)
    val reader = new OwnReader(base.reader())
    try action(reader)
    finally {
      reader.close()
      base.release()
    }
  }

  private def gets(reader: Rows, some: Array[Array[Byte]]): Long = {
    var sum = 0L
    var i = 0
    while (i < some.length) {
      val found = reader.get(some(i))
      if (found != null) sum += found(0) + found(found.length - 1)
      i += 1
    }
    sum
  }

  private def scan(reader: Rows, from: Array[Byte], atMost: Int): Long = {
    val cursor = reader.cursor(from)
    var sum = 0L
    var n = 0
    while (cursor.valid && n < atMost) {
      sum += Platform.getByte(null, cursor.keyAddress + cursor.keyLength - 1) + Platform.getByte(null,
        cursor.valueAddress)
      n += 1
      if (n < atMost) cursor.next()
    }
    cursor.close()
    sum
  }
}

/** Rows of a base, whoever reads them. One thread. */
trait Rows {
  def get(key: Array[Byte]): Array[Byte]
  def cursor(from: Array[Byte]): Cursor
  def close(): Unit
}

private final class OwnReader(reader: BaseReader) extends Rows {
  def get(key: Array[Byte]): Array[Byte] = reader.get(KeyHash.of(key), key)
  def cursor(from: Array[Byte]): Cursor = reader.cursor(from, null)
  def close(): Unit = reader.close()
}

/** A reader of a RocksDB database through direct buffers, which the store had for compressed bases. */
private final class RocksReader(db: RocksDB, options: ReadOptions) extends Rows {
  private var keys = OffHeap.buffer(1 << 10)
  private var values = OffHeap.buffer(1 << 14)

  def get(key: Array[Byte]): Array[Byte] = {
    keys = room(keys, key.length)
    keys.put(key).flip()
    var length = db.get(options, keys, values.clear())
    if (length > values.capacity) {
      values = room(values, length)
      length = db.get(options, keys, values)
    }
    if (length < 0) null else Bytes.array(OffHeap.addressOf(values), length)
  }

  def cursor(from: Array[Byte]): Cursor = new RocksCursor(db.newIterator(options), from)

  def close(): Unit = ()

  private def room(buffer: ByteBuffer, bytes: Int): ByteBuffer =
    if (buffer.capacity < bytes) OffHeap.buffer(math.max(bytes, 2 * buffer.capacity)) else buffer.clear()

  private final class RocksCursor(iterator: RocksIterator, from: Array[Byte]) extends Cursor {
    private var key = OffHeap.buffer(1 << 10)
    private var value = OffHeap.buffer(1 << 14)
    var valid = false
    var keyLength = 0
    var valueLength = 0
    iterator.seek(from)
    load()

    def keyAddress: Long = OffHeap.addressOf(key)
    def valueAddress: Long = OffHeap.addressOf(value)

    private def load(): Unit = {
      valid = iterator.isValid
      if (!valid) iterator.status()
      else {
        keyLength = iterator.key(key.clear())
        if (keyLength > key.capacity) {
          key = room(key, keyLength)
          iterator.key(key)
        }
        valid = !(keyLength >= 2 && key.get(0) == -1 && key.get(1) == -1)
        valueLength = iterator.value(value.clear())
        if (valueLength > value.capacity) {
          value = room(value, valueLength)
          iterator.value(value)
        }
      }
    }

    def next(): Unit = {
      iterator.next()
      load()
    }

    def close(): Unit = iterator.close()
  }
}

/** A base that RocksDB opens with its best settings. */
final class RocksSubject(path: File, filter: BloomFilter, cacheBytes: Long, verify: Boolean = true,
    mapped: Boolean = false) {
  private val cache = new LRUCache(cacheBytes)
  private val options = new Options().setAllowMmapReads(mapped).setMaxOpenFiles(-1)
    .setTableFormatConfig(SstComparison.tableOptions(filter).setBlockCache(cache))
  private val readOptions = new ReadOptions().setVerifyChecksums(verify)
  private val db = RocksDB.openReadOnly(options, path.getPath)
  val reader: Rows = new RocksReader(db, readOptions)

  def close(): Unit = Seq(db, readOptions, options, cache).foreach(_.close())
}

/** Writes of a delta from sorted records in memory, its CRC-32 included. */
final class SstWriting(settings: Map[String, String], directory: File, times: TurnTimes) {
  private val filter = new BloomFilter(10, false)
  private val options =
    new Options().setCompressionType(CompressionType.NO_COMPRESSION).setTableFormatConfig(
      SstComparison.tableOptions(filter))
  private val environment = new EnvOptions
  private val meta = "{}".getBytes("US-ASCII")
  private var count = 0

  def run(): Unit = settings("writes").split(",").map(_.toInt).foreach { rows =>
    val memory = new StoreMemory(1L << 30)
    val arena = new Arena(memory, directory)
    val random = new SplittableRandom(rows)
    val numbers = Array.fill(rows)(random.nextInt(10 * rows)).distinct
    val records = numbers.map(n => record(arena, SstComparison.key(n), SstComparison.value(n, settings("value").toInt)))
    val overwritten = new OverwrittenChanges(memory, directory)
    val sorted = new SortedRuns(memory, directory)
    sorted.addUnsorted(records.foreach(_), _ => true)
    def writer() = new DeltaWriter(sorted, records.length, overwritten, memory, directory)
    val inOrder = records.sortWith(Record.compare(_, _) < 0)
    times.compare(s"delta of $rows: row", rows,
      Seq(
        "own" -> (() => own(writer(), records.length)),
        "own, synced" -> (() => own(writer(), records.length, sync = true)),
        "RocksDB (syncs)" -> (() => rocks(inOrder))))
    sorted.free()
    arena.free()
    overwritten.free()
  }

  private def record(arena: Arena, key: Array[Byte], value: Array[Byte]): Long = {
    val record = arena.allocate(Record.size(key.length, value.length))
    Record.setHeader(record, KeyHash.of(key).toInt, key.length, value.length, value.length)
    Bytes.put(key, Record.keyAddress(record))
    Bytes.put(value, Record.valueAddress(record))
    record
  }

  private def fresh(): File = {
    count += 1
    new File(directory, s"delta-$count.sst")
  }

  private def own(writer: DeltaWriter, count: Int, sync: Boolean = false): Long = {
    val file = fresh()
    writer.write(file, meta, count, 0)
    if (sync) {
      val channel = java.nio.channels.FileChannel.open(file.toPath, java.nio.file.StandardOpenOption.WRITE)
      channel.force(true)
      channel.close()
    }
    file.delete()
    count
  }

  private def rocks(records: Array[Long]): Long = {
    val file = fresh()
    val writer = new SstFileWriter(environment, options)
    writer.open(file.getPath)
    var key = ByteBuffer.allocateDirect(1 << 10)
    var value = ByteBuffer.allocateDirect(1 << 14)
    var i = 0
    while (i < records.length) {
      val record = records(i)
      key = filled(key, Record.keyAddress(record), Record.keyLength(record))
      value = filled(value, Record.valueAddress(record), Record.valueLength(record))
      writer.put(key, value)
      i += 1
    }
    writer.put(Reserved.metaKey, meta)
    writer.finish()
    writer.close()
    crc32(file)
    file.delete()
    records.length
  }

  private def filled(buffer: ByteBuffer, from: Long, bytes: Int): ByteBuffer = {
    val room = if (buffer.capacity < bytes) ByteBuffer.allocateDirect(bytes * 2) else buffer
    Platform.copyMemory(null, from, null, Platform.getDirectBufferAddress(room), bytes)
    room.position(0).limit(bytes)
  }

  private def crc32(file: File): Long = {
    val crc = new java.util.zip.CRC32
    val channel = java.nio.channels.FileChannel.open(file.toPath)
    val chunk = ByteBuffer.allocateDirect(256 << 10)
    while (channel.read(chunk.clear()) > 0) crc.update(chunk.flip())
    channel.close()
    crc.getValue
  }
}
