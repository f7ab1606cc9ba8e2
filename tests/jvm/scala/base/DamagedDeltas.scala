package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.{File, IOException, RandomAccessFile}
import java.nio.file.Files

import scala.util.{Failure, Success, Try}

import org.rocksdb.{BlockBasedTableConfig, ChecksumType, CompressionType, EnvOptions, Options, RocksDB, SstFileWriter}

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Reserved
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Arena, SortedRuns}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.{DeltaWriter, OverwrittenChanges}

/** Deltas with a changed byte, without their end, or that would be written wrong. */
final class DamagedDeltas(files: WholeBases) {
  import files._

  def flipsInDeltas(n: Int): Unit = {
    val file = delta((0 until 1000).map(n => n -> (if (n % 3 == 0) None else Some(1))),
      (0 until 5000).map(n => n % 1000 -> n))
    val intact = changes(file)
    expect(intact.length == 6000 && changes(file) == intact, s"${intact.length} changes")
    val original = Files.readAllBytes(file.toPath)
    val seen = (0 until n).count { _ =>
      flip(file, file.length)
      val found = Try(changes(file))
      writeAgain(file, original)
      found match {
        case Failure(_: IOException) => true
        case Failure(e) => throw e
        case Success(changes) =>
          expect(changes == intact, "a damaged delta reads as other changes")
          false
      }
    }
    expect(seen > n * 9 / 10, s"only $seen of $n flips of a delta were seen")
  }

  /** A delta that the disk does not give back as it was written is not a commit. */
  def refusesDeltasThatDoNotReadBack(): Unit = {
    val other = delta(Seq(1 -> Some(1)), Nil)
    val access = new RandomAccessFile(other, "rw")
    access.setLength(access.length - 1)
    access.close()
    val real = fresh("delta")
    val lying = new File(other.getPath) { // written to one place, and read from another
      override def toPath: java.nio.file.Path = real.toPath
      override def delete(): Boolean = real.delete()
    }
    val written = Try(writer(Seq(1 -> Some(1)), 1)(_.write(lying, meta, 1, 0)))
    expect(written.failed.toOption.exists(_.getMessage.contains(other.getPath)), s"$written")
    expect(!real.exists, "the file stays")
  }

  /** A caller that counts or sorts wrong gets no file. */
  def refusesDeltasOutOfOrder(): Unit = {
    type Changes = Seq[(Int, Option[Int])]
    def refused(says: String, changes: Changes, count: Int, puts: Long, removes: Long, sorted: Boolean = true): Unit = {
      val file = fresh("delta")
      val written = Try(writer(changes, count, sorted)(_.write(file, meta, puts, removes)))
      expect(written.failed.toOption.exists(_.getMessage.contains(says)), s"$written, not $says")
      expect(!file.exists, "the file stays")
    }
    val two = Seq(1 -> Some(1), 2 -> None)
    refused("Key 2 of an SST is not greater", two.reverse, 2, 1, 1, sorted = false)
    refused("Key 2 of an SST is not greater", Seq(1 -> Some(1), 1 -> None), 2, 1, 1)
    refused("was to have 4 keys and got 3", two, 3, 1, 1)
    refused("2 records, of which 1 remove", two, 2, 2, 0)
    refused("2 records, of which 1 remove", two, 2, 2, 1)
  }

  /**
   * A delta without its end, or with records after the reserved record, is not a delta. With keys as short as these an
   * index block has 12 to 18 bytes.
   */
  def refusesIncompleteDeltas(): Unit = {
    def ofTexts(keys: String*): Seq[Array[Byte]] = keys.map(_.map(_.toByte).toArray)
    val halves = (0 to 6).map(n => ofTexts("a" * n, "a" * n + "b")) :+ ofTexts("a", "\uffff\uffff")
    val withMore =
      Seq(ofTexts("a", "\uffff\uffff") :+ Reserved.metaKey,
        ofTexts("a") :+ Reserved.metaKey :+ (Reserved.metaKey :+ 0.toByte))
    (halves ++ withMore).foreach(refusesToRead)
  }

  private def refusesToRead(keys: Seq[Array[Byte]]): Unit = {
    val file = fresh("half")
    val environment = new EnvOptions
    val options = new Options().setCompressionType(CompressionType.NO_COMPRESSION)
      .setTableFormatConfig(new BlockBasedTableConfig().setFormatVersion(5).setChecksumType(ChecksumType.kCRC32c))
    val sst = new SstFileWriter(environment, options)
    sst.open(file.getPath)
    keys.foreach(key => sst.put(key, "{\"format\":1}".getBytes("US-ASCII")))
    sst.finish()
    Seq(sst, environment, options).foreach(_.close())
    val found = Try(changes(file))
    expect(found.failed.toOption.exists(_.getMessage.contains("is an incomplete delta")), s"$found")
  }

  private val meta = "{}".getBytes("US-ASCII")

  private def writer[T](changes: Seq[(Int, Option[Int])], count: Int, sorted: Boolean = true)(
      use: DeltaWriter => T): T = {
    val arena = new Arena(memory, directory)
    val overwritten = new OverwrittenChanges(memory, directory)
    val records = new SortedRuns(memory, directory)
    val all = changes.map { case (n, round) => deltas.record(arena, n, round) }
    if (sorted) records.addUnsorted(all.foreach, _ => true) else records.add(all.toArray, _ => true)
    try use(new DeltaWriter(records, count, overwritten, memory, directory))
    finally {
      records.free()
      arena.free()
      overwritten.free()
    }
  }
}
