package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.{File, IOException}
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.file.Files
import java.util.zip.CRC32C

import scala.jdk.CollectionConverters._
import scala.util.{Random, Try}

import org.rocksdb.{ChecksumType, InfoLogLevel, Options, RocksDB}

import org.apache.spark.sql.execution.streaming.state.incremental.TestFiles

/** The files that a MANIFEST lists, read by this project and by RocksDB. */
object ManifestOracle {

  /** Throws if the two readers differ on a closed database. */
  def check(directory: File): Unit = {
    val ours = listed(directory)
    val theirs = listedByRocksDb(directory)
    if (ours != theirs) throw new AssertionError(s"$directory: $ours and $theirs")
  }

  private def listedByRocksDb(directory: File): Set[(String, Long, Int, Seq[Byte], Seq[Byte], Long)] = {
    val options = new Options().setInfoLogLevel(InfoLogLevel.FATAL_LEVEL)
    try {
      val db = RocksDB.openReadOnly(options, directory.getPath)
      try
        db.getLiveFilesMetaData.asScala.map { f =>
          (f.fileName.stripPrefix("/"), f.size, f.level, f.smallestKey.toSeq, f.largestKey.toSeq, f.largestSeqno)
        }.toSet
      finally db.close()
    } finally options.close()
  }

  /** Flips bits of a MANIFEST: it reads as before, or not at all. Returns the number of flips that were found. */
  def flips(directory: File, n: Int, random: Random): Int = {
    val before = listed(directory)
    val file = directory.listFiles.filter(_.getName.startsWith("MANIFEST-")).head
    val original = Files.readAllBytes(file.toPath)
    (0 until n).count { _ =>
      val flipped = original.clone
      val at = random.nextInt(flipped.length)
      flipped(at) = (flipped(at) ^ (1 << random.nextInt(8))).toByte
      Files.write(file.toPath, flipped)
      val seen =
        try {
          if (listed(directory) != before) throw new AssertionError(s"a flip of byte $at of $file lists other files")
          false
        } catch { case _: IOException => true }
      Files.write(file.toPath, original)
      seen
    }
  }

  /**
   * Changes bytes of a MANIFEST and corrects the checksum of their record: it lists the files that RocksDB lists, if
   * RocksDB opens the database, or is refused with an IOException. Returns the number of changed MANIFESTs that both
   * opened.
   */
  def changes(directory: File, n: Int, random: Random): Int = {
    val file = directory.listFiles.filter(_.getName.startsWith("MANIFEST-")).head
    val original = Files.readAllBytes(file.toPath)
    val opened = (0 until n).count { change =>
      val changed = original.clone
      val (at, length) = records(original)(random.nextInt(records(original).size))
      val steps = (0 to random.nextInt(2)).map { _ =>
        val byte = at + headerBytes + random.nextInt(length)
        changed(byte) = random.nextInt(3) match {
          case 0 => (changed(byte) ^ (1 << random.nextInt(8))).toByte
          case 1 => random.nextInt().toByte
          case _ => Seq(0, 1, -1, 127, -128)(random.nextInt(5)).toByte
        }
        s"byte $byte of $file is ${changed(byte)}"
      }
      val crc = new CRC32C
      crc.update(changed, at + 6, length + 1)
      ByteBuffer.wrap(changed).order(ByteOrder.LITTLE_ENDIAN).putInt(at,
        Integer.rotateRight(crc.getValue.toInt, 15) + 0xa282ead8)
      Files.write(file.toPath, changed)
      val ours =
        try Some(listed(directory))
        catch {
          case _: IOException => None
          case e: Throwable =>
            throw new AssertionError(s"change $change, ${steps.mkString(", ")}: a MANIFEST ends with $e", e)
        }
      val theirs = ours.flatMap(_ => Try(listedByRocksDb(directory)).toOption)
      for (a <- ours; b <- theirs if a != b) throw new AssertionError(s"${steps.mkString(", ")}: $a here and $b there")
      theirs.isDefined
    }
    Files.write(file.toPath, original)
    opened
  }

  private val headerBytes = 7

  /** Returns the offset and the length of each record of a short log. */
  private def records(log: Array[Byte]): Seq[(Int, Int)] = {
    val buffer = ByteBuffer.wrap(log).order(ByteOrder.LITTLE_ENDIAN)
    Iterator.iterate(0)(at => at + headerBytes + (buffer.getShort(at + 4) & 0xffff)).takeWhile(
      _ + headerBytes <= log.length)
      .map(at => at -> (buffer.getShort(at + 4) & 0xffff)).filter(_._2 > 0).toList
  }

  private def listed(directory: File): Set[(String, Long, Int, Seq[Byte], Seq[Byte], Long)] =
    DatabaseManifest.files(directory).map { f =>
      (f.name, f.bytes, f.level, f.smallest.toSeq, f.largest.toSeq, f.newest)
    }.toSet
}

/**
 * MANIFESTs with changed bytes and right checksums, read by this project and by RocksDB. Arguments: the seed, the
 * number of changes.
 */
object ManifestFuzz {
  RocksDB.loadLibrary()

  def main(arguments: Array[String]): Unit = {
    val Array(seed, changes) = arguments.map(_.toInt)
    val directory = Files.createTempDirectory("manifest-fuzz").toFile
    try {
      val random = new Random(seed)
      val database = new WholeBases(random, directory).build(ChecksumType.kCRC32c)
      val opened = ManifestOracle.changes(database, changes, random)
      if (opened == 0) throw new AssertionError(s"none of $changes changed MANIFESTs can be opened")
      println(
        s"$opened of $changes changed MANIFESTs list the same files, the others are refused by one of the readers")
    } finally TestFiles.delete(directory)
  }
}
