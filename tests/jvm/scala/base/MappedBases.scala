package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.{File, IOException}
import java.nio.file.Files

import scala.util.{Random, Try}

import org.rocksdb.{ChecksumType, RocksDB}

import org.apache.spark.sql.execution.streaming.state.incremental.memory.KeyHash
import org.apache.spark.sql.execution.streaming.state.incremental.sst.SstTable

/** The number of mappings, reads without a mapping, and the end of mappings. */
final class MappedBases(files: WholeBases) {
  import files._

  private def mapped(): Int = {
    val maps = scala.io.Source.fromFile("/proc/self/maps")
    try maps.getLines().count(_.contains(directory.getPath))
    finally maps.close()
  }

  /** Many stores with many deltas each: the number of mappings stays below the bound, and everything can be read. */
  def limitsMappings(): Unit = {
    val cache = new TableCache(20)
    val path = build(ChecksumType.kCRC32c)
    val filesEach = path.listFiles.count(_.getName.endsWith(".sst"))
    val bases = (0 until 15).map { i =>
      val copy = fresh("copy")
      copy.mkdir()
      path.listFiles.filter(_.getName != "LOCK").foreach(f => Files.copy(f.toPath, new File(copy, f.getName).toPath))
      open(copy, cache)
    }
    expect(cache.mappings <= 20 && mapped() <= 20, s"${cache.mappings} are counted, ${mapped()} mapped")
    expect(bases.length * filesEach > 4 * 20, "there are too few files")
    random.shuffle(bases).foreach { base =>
      val reader = base.reader()
      checkGets(reader)
      checkScan(reader)
      expect(mapped() <= 20 + filesEach, s"${mapped()} are mapped")
      reader.close()
      expect(cache.mappings <= 20 && mapped() <= 20, s"${cache.mappings} are counted, ${mapped()} mapped")
    }
    val threads = (0 until 4).map { i =>
      val thread = new Thread(() =>
        new Random(i).shuffle(bases).foreach(base => expect(check(base, i % 2 == 0).isEmpty, "threads")))
      val failed = new java.util.concurrent.atomic.AtomicReference[Throwable]
      thread.setUncaughtExceptionHandler((_, e) => failed.set(e))
      thread.start()
      thread -> failed
    }
    threads.foreach { case (thread, failed) =>
      thread.join()
      if (failed.get != null) throw failed.get
    }
    expect(cache.mappings <= 20, s"${cache.mappings} are counted")
    bases.foreach(_.release())
    expect(cache.mappings == 0 && mapped() == 0, s"${cache.mappings} mappings stay, ${mapped()} mapped")
  }

  /** A process without a mapping left reads files as copies; they are not damaged. */
  def readsWithoutMappings(): Unit = {
    var failing = 0
    val cache = new TableCache(1000,
      (file, missing) =>
        if (failing == 0) SstTable.map(file, missing)
        else {
          failing -= 1
          throw noMapping()
        })
    val path = build(ChecksumType.kCRC32c)
    val before = reports
    val merged = BaseDirectory(path.getPath, version(1), live.size, () => (), onDamage = () => reports += 1)
    val (deltasPath, fromRestore) = buildRestored()
    val restored = BaseDirectory(deltasPath.getPath, version(3), -1, () => (), Some(fromRestore))
    for (directory <- Seq(merged, merged.copy(restored = Some(RestoredFiles(version(1), live.size, Nil))), restored)) {
      failing = Int.MaxValue
      val base = Base.open(directory, memory, cache)
      expect(check(base, scanFirst = true).isEmpty && !base.damaged, "it is not read without mappings")
      expect(mapped() == 0 && base.bytes > 0, s"${mapped()} are mapped, ${base.bytes} bytes are copies")
      cache.closeResting()
      expect(base.bytes == 0, s"${base.bytes} bytes stay taken for closed tables")
      for (scanFirst <- Seq(true, false)) {
        failing = 1
        expect(check(base, scanFirst).isEmpty && failing == 0, "a missing mapping is not made up for")
        expect(mapped() > 0 && base.bytes == 0, s"${mapped()} are mapped, ${base.bytes} bytes are copies")
        cache.closeResting()
      }
      base.release()
    }
    expect(reports == before && cache.mappings == 0, s"damage is reported, or ${cache.mappings} mappings stay")
  }

  private def noMapping() = new IOException("Map failed", new OutOfMemoryError("Map failed"))

  /** When all mappings are in use, those of tables without readers make room. */
  def givesMappingsBack(): Unit = {
    val path = build(ChecksumType.kCRC32c)
    val limit = tablesOf(path).size
    lazy val cache: TableCache = new TableCache(1000,
      (file, missing) =>
        if (cache.mappings < limit) SstTable.map(file, missing) else throw noMapping())
    val bases = Seq.fill(2)(open(path, cache))
    for (base <- bases ++ bases) {
      val error = check(base, scanFirst = false)
      expect(error.isEmpty && cache.mappings == limit, s"${cache.mappings} of $limit are counted: $error")
    }
    bases.foreach(_.release())
  }

  /** Readers and scans that are used after their end, or after the end of their base. */
  def endsInOrder(): Unit = {
    val cache = new TableCache(1000)
    val base = open(build(ChecksumType.kCRC32c), cache)
    val reader = base.reader()
    val scan = reader.cursor(Array[Byte](0, 0), null)
    checkGets(reader)
    base.release()
    checkGets(reader) // it holds the tables that it has read
    scan.next()
    expect(scan.valid, "a scan ends with its base")
    reader.close()
    expect(cache.mappings == 0 && mapped() == 0, s"${mapped()} are mapped")
    val late = Seq[() => Any](() => reader.get(KeyHash.of(key(1)), key(1)), () => reader.cursor(key(1), null),
      () => scan.next(),
      () => base.reader().get(KeyHash.of(key(1)), key(1)))
    late.foreach(use =>
      expect(Try(use()).failed.toOption.exists(_.isInstanceOf[IllegalStateException]), "used after its end"))
  }
}
