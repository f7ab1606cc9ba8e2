package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.{File, IOException}
import java.nio.file.Files

import scala.util.{Failure, Success, Try}

import org.rocksdb.{ChecksumType, RocksDBException}

import org.apache.spark.sql.execution.streaming.state.incremental.{RemoteFiles, TestBases}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.UnknownFormatException
import org.apache.spark.sql.execution.streaming.state.incremental.sst.DamagedSstException

/** Bases with deltas beside them: damaged deltas, deltas of other bases, and deltas of which parts are missing. */
final class DamagedRestoredFiles(files: WholeBases) {
  import files._

  def flipsInDeltas(n: Int): Unit = {
    val (path, restored) = buildRestored()
    val intact = openRestored(path, restored)
    val isRead = check(intact, scanFirst = false).isEmpty && intact.keys == live.size
    expect(isRead, "a good base with deltas beside it does not read")
    intact.release()
    expect(reports == 0, "damage of a good base is reported")
    var seen = 0
    for (i <- 0 until n) {
      val file = new File(restored.deltas(i % 2).path)
      val original = Files.readAllBytes(file.toPath)
      flip(file, file.length)
      Try(openRestored(path, restored)) match {
        case Failure(_: IOException | _: RocksDBException) => seen += 1
        case Failure(e) => throw e
        case Success(base) =>
          val before = reports
          check(base, scanFirst = i % 4 < 2).foreach { error =>
            expect(error.getMessage.contains(file.getPath), s"${error.getMessage} does not name $file")
            expect(base.damaged && reports == before + 1, "the damage is not reported")
            seen += 1
          }
          base.release()
      }
      writeAgain(file, original)
    }
    expect(seen > n * 9 / 10, s"only $seen of $n flips of a delta beside a base were seen")
  }

  /** Complete files of other versions, or fewer of them. */
  def refusesOtherDeltas(): Unit = {
    val (path, restored) = buildRestored()
    def refused(input: String, wrong: RestoredFiles): Unit =
      expect(Try(openRestored(path, wrong)).failed.toOption.exists(_.isInstanceOf[IOException]), s"$input is accepted")
    val Seq(newest, newer) = restored.deltas
    refused("another delta", restored.copy(deltas = Seq(newest.copy(path = newer.path), newer)))
    refused("an older delta instead", restored.copy(deltas = Seq(newest, newer.copy(path = newest.path))))
    refused("a chain without its newest delta", restored.copy(deltas = Seq(newer)))
    refused("another version of the database", restored.copy(database = version(2)))
    refused("another number of keys", restored.copy(keys = rows.size - 1))
    val extra = new File(path, "000099.sst")
    Files.copy(new File(newest.path).toPath, extra.toPath)
    refused("a database that does not list a file that it was made of", restored)
    Files.delete(extra.toPath)
    openRestored(path, restored).release()
  }

  /** Complete files with the right names, one of which states the format of a release to come. */
  def refusesNewerFormats(): Unit = {
    val (path, restored) = buildRestored()
    def newer(n: Int, keys: Long): File = delta(Seq(1 -> Some(1)), Nil, TestBases.meta(version(n), keys, format = 2))
    def refused(file: File)(use: => Any): Unit = Try(use) match {
      case Failure(e: UnknownFormatException) =>
        expect(e.file == file.getPath && e.getMessage.contains("has checkpoint format 2"), e.getMessage)
      case other => throw new AssertionError(s"a delta of format 2: $other")
    }
    val Seq(last, first) = restored.deltas
    val before = reports
    for ((n, keys) <- Seq(3 -> live.size, 2 -> rows.size); file = newer(n, keys)) {
      val deltas =
        if (n == 3) Seq(last.copy(path = file.getPath), first) else Seq(last, first.copy(path = file.getPath))
      refused(file)(openRestored(path, restored.copy(deltas = deltas)))
      refused(file)(changes(file))
    }
    val silent = delta(Seq(1 -> Some(1)), Nil, "{}")
    val isRefused = Try(changes(silent)).failed.toOption.exists(_.getMessage.contains("does not name its format"))
    expect(isRefused, "a delta without a format is accepted")
    expect(reports == before, "a newer format is reported as damage")
  }

  /** Files of which only the metadata is there; the rest is fetched when it is read, or cannot be fetched. */
  def readsMissingParts(): Unit = {
    val path = build(ChecksumType.kCRC32c)
    val remote = new RemoteFiles(path, path.listFiles.filter(_.getName.endsWith(".sst")).toSeq)
    var (isDown, isEmpty) = (false, false)
    def fetch(ranges: Seq[(String, Long, Long)]): Unit = {
      if (isDown) throw new RemoteRowsException("it is down", null)
      if (!isEmpty) remote.fetchAll(ranges)
    }
    val all = tablesOf(path).map(_.length).sum
    val directory = BaseDirectory(path.getPath, version(1), live.size, () => (),
      Some(RestoredFiles(version(1), live.size, Nil, remote.names, fetch)))
    for (scanFirst <- Seq(true, false)) {
      remote.forget()
      val before = remote.fetchedBytes
      val base = Base.open(directory, memory, new TableCache(1000))
      expect(remote.fetchedBytes - before < all / 2, "opening fetches more than the record needs")
      isDown = true
      expect(check(base, scanFirst).exists(_.isInstanceOf[RemoteRowsException]), "rows that are missing are read")
      expect(!base.damaged, "missing parts are taken for damaged")
      isDown = false
      expect(check(base, scanFirst).isEmpty && remote.fetchedBytes > before, "missing parts are not read")
      val after = remote.fetchedBytes
      expect(check(base, scanFirst).isEmpty && remote.fetchedBytes == after, "present parts are fetched again")
      base.release()
    }
    remote.forget()
    val file = remote.names.head
    val base = Base.open(directory, memory, new TableCache(1000))
    isEmpty = true
    expect(check(base, scanFirst = true).exists(_.isInstanceOf[DamagedSstException]), s"a hole in $file is read")
    expect(base.damaged, "the base does not report the damage")
    base.release()
  }
}
