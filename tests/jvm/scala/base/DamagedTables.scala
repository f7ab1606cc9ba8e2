package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.{File, IOException, RandomAccessFile}
import java.nio.file.Files

import scala.util.{Failure, Success, Try}

import org.rocksdb.{ChecksumType, RocksDB, RocksDBException}

import org.apache.spark.sql.execution.streaming.state.incremental.{RemoteFiles, TestFiles}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.KeyHash
import org.apache.spark.sql.execution.streaming.state.incremental.sst.DamagedSstException

/** Bases whose tables are mapped: flipped bytes and cut ends. */
final class DamagedTables(files: WholeBases) {
  import files._

  def flips(checksum: ChecksumType, n: Int): Unit = {
    val path = build(checksum)
    val cache = new TableCache(1000)
    val intact = open(path, cache)
    expect(check(intact, scanFirst = false).isEmpty && !intact.damaged, "a good base does not read")
    intact.release()
    expect(cache.mappings == 0, "tables stay open")
    val tables = path.listFiles.filter(_.getName.endsWith(".sst"))
    expect(tables.length > 4, s"${tables.length} files are too few")
    ManifestOracle.check(path)
    expect(ManifestOracle.flips(path, n, random) == n, "a flip of the MANIFEST is not seen")
    // Opening reads the record of the version, whose block, the last one of its table, is verified from then on.
    def unread(file: File): Int = RemoteFiles.dataBytes(file) - 5000
    val large = tables.filter(unread(_) > 0)
    var seen = 0
    for (i <- 0 until n) {
      val file = if (i % 2 == 0) large(random.nextInt(large.length)) else tables(random.nextInt(tables.length))
      val original = Files.readAllBytes(file.toPath)
      writeAgain(file, original) // the parts verified before do not count for it any more
      val opened = if (i % 2 == 0) Some(open(path, cache)) else None // else it is opened after the damage
      val at = flip(file, if (opened.isDefined) unread(file).toLong else file.length)
      Try(opened.getOrElse(open(path, cache))) match {
        case Failure(_: IOException | _: RocksDBException) => seen += 1
        case Failure(e) => throw e
        case Success(base) =>
          check(base, scanFirst = i % 4 < 2).foreach { error =>
            expect(error.isInstanceOf[DamagedSstException], s"a flip of byte $at of $file ends with $error")
            expect(error.getMessage.contains(file.getPath), s"${error.getMessage} does not name $file")
            expect(base.damaged, "the base does not report the damage")
            seen += 1
          }
          base.release()
      }
      writeAgain(file, original)
    }
    expect(seen > n * 9 / 10, s"only $seen of $n flips were seen")
  }

  /** Files that become shorter: before they are opened, while they are open, and after all of them was read once. */
  def cutOff(): Unit = for (when <- Seq("before", "open", "read"); part <- Seq(0.0, 0.3, 0.9)) {
    val path = build(ChecksumType.kCRC32c)
    val file = path.listFiles.filter(_.getName.endsWith(".sst")).maxBy(_.length)
    var named = 0
    def cut(): Unit = {
      val access = new RandomAccessFile(file, "rw")
      access.setLength((file.length * part).toLong)
      access.close()
    }
    val cache = new TableCache(1000)
    if (when == "before") cut()
    Try(open(path, cache)) match {
      case Failure(_: IOException | _: RocksDBException) => expect(when == "before", "a base cannot be opened")
      case Failure(e) => throw e
      case Success(base) =>
        if (when == "read") expect(check(base, scanFirst = false).isEmpty, "a good base does not read")
        cut()
        for (scanFirst <- Seq(true, false)) {
          val error = check(base, scanFirst)
          expect(error.exists(e => e.isInstanceOf[IOException] || e.isInstanceOf[InternalError]),
            s"cut off when $when: $error")
          if (error.exists(_.isInstanceOf[IOException])) {
            expect(error.get.getMessage.contains(file.getPath), s"${error.get.getMessage} does not name $file")
            expect(base.damaged, "the base does not report the damage")
            named += 1
          }
        }
        base.release()
    }
    TestFiles.delete(path)
    expect(when == "before" || named > 0, "no exception names the file")
  }

  /** Files that end in a value, in their index or in their filter after all of them was read once. */
  def cutAnywhere(): Unit = for (place <- 0 until 20; scanFirst <- Seq(true, false)) {
    val path = build(ChecksumType.kCRC32c)
    val base = open(path, new TableCache(1000))
    expect(check(base, scanFirst = false).isEmpty, "a good base does not read")
    val file = tablesOf(path).maxBy(_.length)
    val data = if (place < 4) 0 else RemoteFiles.dataBytes(file).toLong
    cut(file, data + (random.nextDouble() * (file.length - data)).toLong)
    val error = check(base, scanFirst)
    expect(error.exists(e => e.isInstanceOf[IOException] || e.isInstanceOf[InternalError]), s"cut off: $error")
    base.release()
    TestFiles.delete(path)
  }

  /**
   * Files that end where their last page begins, which has the end of their filters: it reads as zeros without a fault,
   * and each look-up is right or fails.
   */
  def cutInLastPage(): Unit = for (_ <- 0 until 4) {
    val path = build(ChecksumType.kCRC32c)
    val base = open(path, new TableCache(1000))
    expect(check(base, scanFirst = false).isEmpty, "a good base does not read")
    tablesOf(path).foreach(file => cut(file, (file.length - 1) / 4096 * 4096 + 1))
    expect(checkEach(base) > 0, "a cut is not seen")
    base.release()
    TestFiles.delete(path)
  }

  private def cut(file: File, length: Long): Unit = {
    val access = new RandomAccessFile(file, "rw")
    access.setLength(length)
    access.close()
  }
}

/** Compressed bases: flipped bytes, cut ends, uses after the end. */
final class DamagedCompressed(files: WholeBases) {
  import files._

  /** Flips bytes of tables whose blocks and index are compressed. */
  def flipsOfCompressed(n: Int): Unit = {
    val path = build(ChecksumType.kCRC32c, compressed = true)
    val intact = openReporting(path)
    expect(check(intact, scanFirst = false).isEmpty && !intact.damaged, "a good compressed base does not read")
    intact.release()
    val tables = tablesOf(path)
    var seen = 0
    for (i <- 0 until n) {
      val file = tables(random.nextInt(tables.length))
      val original = Files.readAllBytes(file.toPath)
      val opened = if (i % 2 == 0) Some(openReporting(path)) else None // else it is opened after the damage
      val at = flip(file, file.length / (if (opened.isDefined) 2 else 1))
      Try(opened.getOrElse(openReporting(path))) match {
        case Failure(_: IOException) => seen += 1
        case Failure(e) => throw e
        case Success(base) =>
          val before = reports
          check(base, scanFirst = i % 4 < 2).foreach { error =>
            expect(error.isInstanceOf[IOException], s"a flip of byte $at of $file ends with $error")
            expect(base.damaged && reports == before + 1, "the base does not report the damage")
            seen += 1
          }
          base.release()
      }
      writeAgain(file, original)
    }
    expect(seen > n / 2, s"only $seen of $n flips of a compressed base were seen")
  }

  /**
   * Cuts files, before the page in which their filter begins: the rest of the page in which a file ends reads as zeros,
   * which a mapped filter takes for absent keys.
   */
  def cutOffCompressed(): Unit = {
    var seen = 0
    for (part <- Seq(0.0, 0.3, 0.6); scanFirst <- Seq(true, false)) {
      val path = build(ChecksumType.kCRC32c, compressed = true)
      val base = openReporting(path)
      val access = new RandomAccessFile(tablesOf(path).maxBy(_.length), "rw")
      access.setLength((access.length * part).toLong)
      access.close()
      check(base, scanFirst).foreach { error =>
        expect(error.isInstanceOf[InternalError] || error.isInstanceOf[IOException] && base.damaged,
          s"cut off at $part: $error")
        seen += 1
      }
      base.release()
      TestFiles.delete(path)
    }
    expect(seen >= 4, s"only $seen of 6 cuts of a compressed base were seen")
  }

  def refusesUsesAfterTheEndOfCompressed(): Unit = {
    val base = openReporting(build(ChecksumType.kCRC32c, compressed = true))
    val reader = base.reader()
    val scan = reader.cursor(Array[Byte](0, 0), null)
    scan.next()
    expect(scan.valid, "a scan ends with its first row")
    reader.close()
    val late = Seq[() => Any](() => reader.get(KeyHash.of(key(1)), key(1)),
      () => reader.contains(KeyHash.of(key(1)), key(1)),
      () => reader.cursor(key(1), null), () => scan.next(), () => base.reader().get(KeyHash.of(key(1)), key(1)))
    def refused(use: () => Any): Boolean = Try(use()).failed.toOption.exists(_.isInstanceOf[IllegalStateException])
    late.init.foreach(use => expect(refused(use), "used after its end"))
    base.release()
    late.foreach(use => expect(refused(use), "used after its end"))
  }
}
