package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.nio.file.Files

import scala.util.Random

import org.rocksdb.{ChecksumType, RocksDB}

import org.apache.spark.sql.execution.streaming.state.incremental.TestFiles

/** MANIFESTs with some bytes changed and right checksums, read here and by RocksDB. Arguments: the seed, how many changes. */
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
      println(s"$opened of $changes changed MANIFESTs list the same files, the others are refused by one of the readers")
    } finally TestFiles.delete(directory)
  }
}
