package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.{IOException, RandomAccessFile}
import java.nio.file.Files

import scala.util.{Failure, Success, Try}

import org.rocksdb.{ChecksumType, RocksDB}

import org.apache.spark.sql.execution.streaming.state.incremental.TestFiles
import org.apache.spark.sql.execution.streaming.state.incremental.memory.KeyHash

/** Compressed bases, which RocksDB reads: flipped bytes, ends that are cut off, uses after the end. */
final class DamagedCompressed(files: WholeBases) {
  import files._

  /** The same where RocksDB reads. */
  def flipsOfCompressed(n: Int): Unit = {
    val path = build(ChecksumType.kCRC32c, compressed = true)
    val whole = openCompressed(path)
    expect(check(whole, scanFirst = false).isEmpty && !whole.damaged, "a whole compressed base is not")
    whole.release()
    val tables = tablesOf(path)
    var seen = 0
    for (i <- 0 until n) {
      val file = tables(random.nextInt(tables.length))
      val original = Files.readAllBytes(file.toPath)
      val opened = if (i % 2 == 0) Some(openCompressed(path)) else None // else it is opened on the damage
      val at = flip(file, file.length / (if (opened.isDefined) 2 else 1))
      Try(opened.getOrElse(openCompressed(path))) match {
        case Failure(_: IOException) => seen += 1
        case Failure(e) => throw e
        case Success(base) =>
          val before = told
          check(base, scanFirst = i % 4 < 2).foreach { error =>
            expect(error.isInstanceOf[IOException], s"a flip of byte $at of $file ends with $error")
            expect(base.damaged && told == before + 1, "the base does not know")
            seen += 1
          }
          base.release()
      }
      Files.write(file.toPath, original)
    }
    expect(seen > n / 2, s"only $seen of $n flips of a compressed base were seen")
  }

  /** RocksDB keeps what it has read, so that much of a file may go unseen: then the rows are right. */
  def cutOffCompressed(): Unit = {
    var seen = 0
    for (part <- Seq(0.0, 0.3, 0.9); scanFirst <- Seq(true, false)) {
      val path = build(ChecksumType.kCRC32c, compressed = true)
      val base = openCompressed(path)
      val access = new RandomAccessFile(tablesOf(path).maxBy(_.length), "rw")
      access.setLength((access.length * part).toLong)
      access.close()
      check(base, scanFirst).foreach { error =>
        expect(error.isInstanceOf[IOException] && base.damaged, s"cut off at $part: $error")
        seen += 1
      }
      base.release()
      TestFiles.delete(path)
    }
    expect(seen >= 4, s"only $seen of 6 cuts of a compressed base were seen")
  }

  def compressedEndInOrder(): Unit = {
    val base = openCompressed(build(ChecksumType.kCRC32c, compressed = true))
    val reader = base.reader()
    val scan = reader.cursor(Array[Byte](0, 0), null)
    scan.next()
    expect(scan.valid, "a scan ends with its first row")
    reader.close()
    val late = Seq[() => Any](() => reader.get(KeyHash.of(key(1)), key(1)), () => reader.contains(KeyHash.of(key(1)), key(1)),
      () => reader.cursor(key(1), null), () => scan.next(), () => base.reader())
    def refused(use: () => Any): Boolean = Try(use()).failed.toOption.exists(_.isInstanceOf[IllegalStateException])
    late.init.foreach(use => expect(refused(use), "used after its end"))
    base.release()
    late.foreach(use => expect(refused(use), "used after its end"))
  }
}
