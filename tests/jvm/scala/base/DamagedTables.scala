package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.{IOException, RandomAccessFile}
import java.nio.file.Files

import scala.util.{Failure, Success, Try}

import org.rocksdb.{ChecksumType, RocksDBException}

import org.apache.spark.sql.execution.streaming.state.incremental.{FarFiles, TestFiles}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.DamagedSstException

/** Bases whose tables are mapped: flipped bytes, ends that are cut off. */
final class DamagedTables(files: WholeBases) {
  import files._

  def flips(checksum: ChecksumType, n: Int): Unit = {
    val path = build(checksum)
    val cache = new TableCache(1000)
    val whole = open(path, cache)
    expect(check(whole, scanFirst = false).isEmpty && !whole.damaged, "a whole base is not")
    whole.release()
    expect(cache.openTables == 0, "tables stay open")
    val tables = path.listFiles.filter(_.getName.endsWith(".sst"))
    expect(tables.length > 4, s"${tables.length} files are too few")
    ManifestOracle.check(path)
    expect(ManifestOracle.flips(path, n, random) == n, "a flip of the MANIFEST is not seen")
    var seen = 0
    for (i <- 0 until n) {
      val file = tables(random.nextInt(tables.length))
      val original = Files.readAllBytes(file.toPath)
      Files.write(file.toPath, original) // what was verified before is no more known of it
      val opened = if (i % 2 == 0) Some(open(path, cache)) else None // else it is opened on the damage
      val at = flip(file, if (opened.isDefined) FarFiles.dataBytes(file).toLong else file.length)
      Try(opened.getOrElse(open(path, cache))) match {
        case Failure(_: IOException | _: RocksDBException) => seen += 1
        case Failure(e) => throw e
        case Success(base) =>
          check(base, scanFirst = i % 4 < 2).foreach { error =>
            expect(error.isInstanceOf[DamagedSstException], s"a flip of byte $at of $file ends with $error")
            expect(error.getMessage.contains(file.getPath), s"${error.getMessage} does not name $file")
            expect(base.damaged, "the base does not know")
            seen += 1
          }
          base.release()
      }
      Files.write(file.toPath, original)
    }
    expect(seen > n * 9 / 10, s"only $seen of $n flips were seen")
  }

  /** Files that become shorter: before they are opened, when they are open, and when all of them was read once. */
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
        if (when == "read") expect(check(base, scanFirst = false).isEmpty, "a whole base is not")
        cut()
        for (scanFirst <- Seq(true, false)) {
          val error = check(base, scanFirst)
          expect(error.exists(e => e.isInstanceOf[IOException] || e.isInstanceOf[InternalError]), s"cut off when $when: $error")
          if (error.exists(_.isInstanceOf[IOException])) {
            expect(error.get.getMessage.contains(file.getPath), s"${error.get.getMessage} does not name $file")
            expect(base.damaged, "the base does not know")
            named += 1
          }
        }
        base.release()
    }
    TestFiles.delete(path)
    expect(when == "before" || named > 0, "no exception names the file")
  }
}
