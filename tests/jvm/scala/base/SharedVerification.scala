package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.{File, RandomAccessFile}
import java.nio.file.Files

import scala.util.Try

import org.rocksdb.ChecksumType

import org.apache.spark.sql.execution.streaming.state.incremental.sst.{DamagedSstException, SstTable}

/** What was verified of a file counts for whoever opens the same file, and for no other. */
final class SharedVerification(files: WholeBases) {
  import files._

  private def read(table: SstTable, block: Int): Unit = table.content(block, table.block(block), null, 0)

  private def withTable[T](path: File)(use: SstTable => T): T = {
    val table = SstTable.map(path)
    try use(table)
    finally table.close()
  }

  def check(): Unit = {
    val file = tablesOf(build(ChecksumType.kCRC32c)).maxBy(_.length)
    val link = fresh("link")
    Files.createLink(link.toPath, file.toPath)
    val kept = new CachedTable(link, new TableCache(10))
    withTable(file)(table => read(table, 0))
    System.gc() // what is known stays, since somebody has the file
    val copy = fresh("copy")
    Files.copy(file.toPath, copy.toPath)
    for ((one, isKnown) <- Seq(file -> true, link -> true, copy -> false)) withTable(one) { table =>
      expect(table.isVerified(0) == isKnown, s"the first block of $one is verified: ${!isKnown}")
      expect(!table.isVerified(1), s"the second block of $one is verified, which nobody has read")
    }
    kept.drop()
    damageIsSeen(file)
  }

  /** Of a file that was verified as a whole, index and filter too, any byte. */
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
      val found = Try(withTable(file) { table => (0 until table.blocks).foreach(read(table, _)) })
      expect(found.failed.toOption.exists(_.isInstanceOf[DamagedSstException]), s"another byte $at of $file: $found")
      Files.write(file.toPath, original)
    }
    before.close()
  }
}
