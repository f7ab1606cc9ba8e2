package org.apache.spark.sql.execution.streaming.state.incremental.delta

import java.io.File
import java.nio.channels.FileChannel
import java.nio.file.{Files, StandardOpenOption}
import java.util.Arrays

import scala.util.Try

import org.rocksdb.{Options, RocksDB, SstFileReader}

import org.apache.spark.sql.execution.streaming.state.incremental.TestFiles
import org.apache.spark.sql.execution.streaming.state.incremental.base.{
  Base, BaseDirectory, RestoredFiles, RestoredDelta, NeedsDatabaseException
}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{
  ColumnFamilies, DeltaMetadata, Reserved, VersionId
}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, OffHeap, StoreMemory}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.SstWriter

/** A delta of more than 2 GiB: too long for a mapping, and for 32-bit offsets of blocks. */
object LargeDelta {
  private val changes = 34
  private val valueBytes = 64 << 20
  private val version = VersionId(1, Some("a"))
  private val memory = new StoreMemory(64L << 20)

  def main(arguments: Array[String]): Unit = {
    RocksDB.loadLibrary()
    val directory = Files.createTempDirectory("large-delta").toFile
    try {
      val file = new File(directory, "delta.sst")
      write(file)
      readAsFeed(file)
      readByRocksDb(file)
      asksForADatabase(file)
      expect(memory.usedBytes == 0, s"${memory.usedBytes} bytes stay taken")
      println(s"all $changes changes of ${file.length} bytes were read")
    } finally TestFiles.delete(directory)
  }

  private def expect(condition: Boolean, message: => String): Unit = if (!condition) throw new AssertionError(message)

  private def key(n: Int): Array[Byte] = Array[Byte](0, 0, n.toByte)

  private def write(file: File): Unit = {
    val channel = FileChannel.open(file.toPath, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)
    val sst = new SstWriter(channel, changes + 1L, memory, file.getParentFile)
    val value = OffHeap.allocate(valueBytes)
    val keys = OffHeap.allocate(2 * 64)
    def add(n: Int, key: Array[Byte], length: Int): Unit = {
      val at = keys + n % 2 * 64 // the writer compares a key with the key before
      Bytes.put(key, at)
      sst.add(at, key.length, value, length)
    }
    (0 until changes).foreach { n =>
      OffHeap.setMemory(value, n.toByte, valueBytes)
      add(n, key(n), valueBytes)
    }
    val meta = DeltaMetadata(version, "none", changes, changes, 0, ColumnFamilies.initial, "test").toJson
    Bytes.put(meta, value)
    add(changes, Reserved.metaKey, meta.length)
    sst.finish(_ => Nil)
    sst.close()
    channel.close()
    OffHeap.free(value)
    OffHeap.free(keys)
    expect(file.length > Int.MaxValue, s"it has ${file.length} bytes")
  }

  private def readAsFeed(file: File): Unit = {
    val reader = new DeltaReader(file)
    val wanted = new Array[Byte](valueBytes)
    (0 until changes).foreach { n =>
      expect(reader.advance(), s"the feed ends before change $n")
      expect(reader.key.sameElements(key(n)), s"the feed has another key than $n")
      Arrays.fill(wanted, n.toByte)
      expect(Arrays.equals(reader.value, wanted), s"the value of key $n is another")
    }
    expect(!reader.advance(), "the feed has more changes")
  }

  private def readByRocksDb(file: File): Unit = {
    val options = new Options
    val reader = new SstFileReader(options)
    reader.open(file.getPath)
    reader.verifyChecksum()
    expect(reader.getTableProperties.getNumEntries == changes + 1, "RocksDB finds another number of entries")
    reader.close()
    options.close()
  }

  /**
   * A base with such a delta beside its database is read by RocksDB, after a restore that makes it part of the
   * database.
   */
  private def asksForADatabase(file: File): Unit = {
    val restored = RestoredFiles(VersionId.empty, 0, Seq(RestoredDelta(file.getPath, version)))
    val directory = BaseDirectory(file.getParent, version, -1, () => (), Some(restored),
      () => throw new AssertionError("damage"))
    val opened = Try(Base.open(directory, memory))
    expect(opened.failed.toOption.exists(_.isInstanceOf[NeedsDatabaseException]), s"$opened")
  }
}
