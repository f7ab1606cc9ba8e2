package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.{File, IOException, RandomAccessFile}
import java.nio.file.Files
import java.util.Arrays

import scala.util.{Random, Try}

import org.rocksdb.{BlockBasedTableConfig, ChecksumType, CompressionType, EnvOptions, Options, RocksDB, SstFileWriter}

import org.apache.spark.sql.execution.streaming.state.incremental.{RemoteFiles, TestFiles}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.OffHeap
import org.apache.spark.sql.execution.streaming.state.incremental.sst.{DamagedSstException, SstRoom, SstTable}

/**
 * Bases and deltas with a changed byte or without their end: readers get an exception or the right rows, never others,
 * and the process lives on. Arguments: seed, number of flips.
 */
object DamagedBases {
  RocksDB.loadLibrary()

  def main(arguments: Array[String]): Unit = {
    val directory = Files.createTempDirectory("damaged-bases").toFile
    try {
      run(new WholeBases(new Random(arguments(0).toLong), directory), arguments(1).toInt)
      println("no wrong row")
    } finally TestFiles.delete(directory)
  }

  private def run(files: WholeBases, flips: Int): Unit = {
    val tables = new DamagedTables(files)
    tables.flips(ChecksumType.kCRC32c, flips)
    tables.cutOff()
    tables.cutAnywhere()
    tables.cutInLastPage()
    val deltas = new DamagedDeltas(files)
    deltas.flipsInDeltas(flips)
    deltas.refusesDeltasThatDoNotReadBack()
    deltas.refusesDeltasOutOfOrder()
    deltas.refusesIncompleteDeltas()
    val restored = new DamagedRestoredFiles(files)
    restored.flipsInDeltas(flips)
    restored.refusesOtherDeltas()
    restored.refusesNewerFormats()
    restored.readsMissingParts()
    val mapped = new MappedBases(files)
    mapped.limitsMappings()
    mapped.readsWithoutMappings()
    mapped.givesMappingsBack()
    mapped.endsInOrder()
    new SharedVerification(files).check()
    new IndexSearches(files).check()
    failedScansStayFailed(files, compressed = false)
    val compressed = new DamagedCompressed(files)
    compressed.flipsOfCompressed(flips / 2)
    compressed.cutOffCompressed()
    compressed.refusesUsesAfterTheEndOfCompressed()
    failedScansStayFailed(files, compressed = true)
  }

  /**
   * A scan that met a damaged block never ends normally: a caller that takes its exception for the end would miss rows.
   */
  private def failedScansStayFailed(files: WholeBases, compressed: Boolean): Unit = {
    import files._
    val path = build(ChecksumType.kCRC32c, compressed)
    val file = tablesOf(path).maxBy(_.length)
    val access = new RandomAccessFile(file, "rw")
    access.seek(if (compressed) file.length / 4 else RemoteFiles.dataBytes(file).toLong - 20)
    access.write(Array.fill[Byte](4)(77))
    access.close()
    val base = if (compressed) openReporting(path) else open(path, new TableCache(1000))
    val reader = base.reader()
    val scan = reader.cursor(Array[Byte](0, 0), null)
    val ended = Try(while (scan.valid) scan.next())
    expect(ended.failed.toOption.exists(_.isInstanceOf[IOException]), s"the scan ended: $ended")
    expect(ended.failed.get.isInstanceOf[DamagedSstException], s"the scan ended: $ended")
    for (use <- Seq[() => Any](() => scan.valid, () => scan.next(), () => scan.valid)) {
      expect(Try(use()).failed.toOption.exists(_ => base.damaged), "the scan ends quietly")
    }
    reader.close()
    base.release()
  }
}

/** The verified parts of a file count for all readers of the same file, and for no other file. */
final class SharedVerification(files: WholeBases) {
  import files._

  private def read(table: SstTable, block: Int): Unit = {
    val room = new SstRoom
    try table.read(block, room, 0)
    finally room.free()
  }

  private def withTable[T](path: File)(use: SstTable => T): T = {
    val table = SstTable.map(path)
    try use(table)
    finally table.close()
  }

  def check(): Unit = {
    val file = tablesOf(build(ChecksumType.kCRC32c)).maxBy(_.length)
    val link = fresh("link")
    Files.createLink(link.toPath, file.toPath)
    val kept = new CachedTable(link, new TableCache(10), memory)
    withTable(file)(table => read(table, 0))
    System.gc() // the verified parts stay while the file is in use
    val copy = fresh("copy")
    Files.copy(file.toPath, copy.toPath)
    for ((other, isKnown) <- Seq(file -> true, link -> true, copy -> false)) withTable(other) { table =>
      expect(table.isVerified(0) == isKnown, s"the first block of $other is verified: ${!isKnown}")
      expect(!table.isVerified(1), s"the second block of $other is verified, which nobody has read")
    }
    kept.drop()
    damageIsSeen(file)
  }

  /** Changes bytes anywhere in a file that was verified completely, index and filter included: each change is found. */
  private def damageIsSeen(file: File): Unit = {
    val before = SstTable.map(file)
    for (i <- 0 until before.blocks) read(before, i)
    val original = Files.readAllBytes(file.toPath)
    for (place <- 0 until 40) {
      val at = (original.length - 60) * place / 40
      val access = new RandomAccessFile(file, "rw")
      access.seek(at)
      access.write(original(at) ^ 1)
      access.close()
      renew(file)
      val found = Try(withTable(file) { table => (0 until table.blocks).foreach(read(table, _)) })
      expect(found.failed.toOption.exists(_.isInstanceOf[DamagedSstException]), s"byte $at of $file changed: $found")
      writeAgain(file, original)
    }
    before.close()
  }
}

/** A table that was searched often finds the same blocks as a table without any search before. */
final class IndexSearches(files: WholeBases) {
  import files._

  def check(): Unit = for (prefix <- Seq("", "key-", "a longer prefix")) {
    val keys = Seq.fill(4000)(prefix.getBytes("US-ASCII") ++ anyBytes()).sortWith(Arrays.compareUnsigned(_, _) < 0)
    val file = write(keys.zip(keys.drop(1)).collect { case (a, b) if !Arrays.equals(a, b) => a })
    val often = SstTable.map(file)
    expect(often.blocks > 500, s"${often.blocks} blocks are too few")
    val wanted =
      random.shuffle(keys) ++ Seq.fill(2000)(prefix.getBytes("US-ASCII") ++ anyBytes()) ++ Seq.fill(500)(anyBytes())
    wanted.foreach(blockOf(often, _))
    wanted.grouped(5).foreach { some =>
      val another = SstTable.map(file)
      some.foreach { key =>
        val (found, expected) = (blockOf(often, key), blockOf(another, key))
        expect(found == expected, s"${key.mkString(" ")} is looked up in block $found, and not in $expected")
      }
      another.close()
    }
    often.close()
  }

  private def blockOf(table: SstTable, key: Array[Byte]): Int = table.blockOf(key, OffHeap.arrayBase, key.length)

  /**
   * Returns bytes of few different values, so that many keys have 8 of them in common, or differ only in zeros at the
   * end.
   */
  private def anyBytes(): Array[Byte] = {
    val some = Array[Byte](0, 1, -1, 0, 0)
    Array.fill(random.nextInt(24))(some(random.nextInt(some.length)))
  }

  private def write(keys: Seq[Array[Byte]]): File = {
    val file = fresh("blocks")
    val environment = new EnvOptions
    val options = new Options().setCompressionType(CompressionType.NO_COMPRESSION)
      .setTableFormatConfig(
        new BlockBasedTableConfig().setFormatVersion(5).setChecksumType(ChecksumType.kCRC32c).setBlockSize(64))
    val sst = new SstFileWriter(environment, options)
    sst.open(file.getPath)
    keys.foreach(sst.put(_, "value".getBytes("US-ASCII")))
    sst.finish()
    Seq(sst, environment, options).foreach(_.close())
    file
  }
}
