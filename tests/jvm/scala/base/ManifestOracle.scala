package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.{File, IOException}
import java.nio.file.Files

import scala.jdk.CollectionConverters._
import scala.util.Random

import org.rocksdb.{InfoLogLevel, Options, RocksDB}

/** What a MANIFEST says, read by us and by RocksDB. */
object ManifestOracle {

  /** Throws where the two differ on a database that is closed. */
  def check(directory: File): Unit = {
    val ours = listed(directory)
    val options = new Options().setInfoLogLevel(InfoLogLevel.FATAL_LEVEL)
    val db = RocksDB.openReadOnly(options, directory.getPath)
    val theirs = db.getLiveFilesMetaData.asScala.map { f =>
      (f.fileName.stripPrefix("/"), f.size, f.level, f.smallestKey.toSeq, f.largestKey.toSeq, f.largestSeqno)
    }.toSet
    db.close()
    options.close()
    if (ours != theirs) throw new AssertionError(s"$directory: $ours and $theirs")
  }

  /** Flips bits of a MANIFEST: it reads as it was, or not at all. How many were seen. */
  def flips(directory: File, n: Int, random: Random): Int = {
    val whole = listed(directory)
    val file = directory.listFiles.filter(_.getName.startsWith("MANIFEST-")).head
    val original = Files.readAllBytes(file.toPath)
    (0 until n).count { _ =>
      val flipped = original.clone
      val at = random.nextInt(flipped.length)
      flipped(at) = (flipped(at) ^ (1 << random.nextInt(8))).toByte
      Files.write(file.toPath, flipped)
      val seen =
        try {
          if (listed(directory) != whole) throw new AssertionError(s"a flip of byte $at of $file lists other files")
          false
        } catch { case _: IOException => true }
      Files.write(file.toPath, original)
      seen
    }
  }

  private def listed(directory: File): Set[(String, Long, Int, Seq[Byte], Seq[Byte], Long)] =
    DatabaseManifest.files(directory).map { f =>
      (f.name, f.bytes, f.level, f.smallest.toSeq, f.largest.toSeq, f.newest)
    }.toSet
}
