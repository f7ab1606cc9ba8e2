package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.File
import java.util.Arrays

import org.rocksdb.{BlockBasedTableConfig, ChecksumType, CompressionType, EnvOptions, Options, SstFileWriter}

import org.apache.spark.sql.execution.streaming.state.incremental.memory.OffHeap
import org.apache.spark.sql.execution.streaming.state.incremental.sst.SstTable

/** A table that was searched often finds the blocks that one finds which nobody has searched before. */
final class IndexSearches(files: WholeBases) {
  import files._

  def check(): Unit = for (prefix <- Seq("", "key-", "a longer prefix")) {
    val keys = Seq.fill(4000)(prefix.getBytes("US-ASCII") ++ anyBytes()).sortWith(Arrays.compareUnsigned(_, _) < 0)
    val file = write(keys.zip(keys.drop(1)).collect { case (a, b) if !Arrays.equals(a, b) => a })
    val often = SstTable.map(file)
    expect(often.blocks > 500, s"${often.blocks} blocks are too few")
    val wanted = random.shuffle(keys) ++ Seq.fill(2000)(prefix.getBytes("US-ASCII") ++ anyBytes()) ++ Seq.fill(500)(anyBytes())
    wanted.foreach(blockOf(often, _))
    wanted.grouped(5).foreach { some =>
      val another = SstTable.map(file)
      some.foreach { key =>
        val (found, expected) = (blockOf(often, key), blockOf(another, key))
        expect(found == expected, s"${key.mkString(" ")} is sought in block $found, and not in $expected")
      }
      another.close()
    }
    often.close()
  }

  private def blockOf(table: SstTable, key: Array[Byte]): Int = table.blockOf(key, OffHeap.arrayBase, key.length)

  /** Few different ones, so that many keys have 8 of them in common, and are equal to one but for zeros at the end. */
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
