package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.io.File
import java.nio.channels.FileChannel
import java.nio.file.{Files, StandardOpenOption}
import java.util.Arrays

import org.rocksdb.{Options, RocksDB, SstFileReader}

import org.apache.spark.sql.execution.streaming.state.incremental.TestFiles
import org.apache.spark.sql.execution.streaming.state.incremental.base.{
  Base, BaseDirectory, RestoredDelta, RestoredFiles
}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{
  ColumnFamilies, DeltaMetadata, Reserved, VersionId
}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, KeyHash, OffHeap, StoreMemory}

/** A delta of more than 2 GiB: too long for one mapping, and for 32-bit offsets of blocks. */
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
      readsMapped(file)
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

  /** A base with such a delta beside its database reads it through two mappings, and the block across them as a copy. */
  private def readsMapped(file: File): Unit = {
    val restored = RestoredFiles(VersionId.empty, 0, Seq(RestoredDelta(file.getPath, version)))
    val directory = BaseDirectory(file.getParent, version, -1, () => (), Some(restored),
      () => throw new AssertionError("damage"))
    val base = Base.open(directory, memory)
    val reader = base.reader()
    val wanted = new Array[Byte](valueBytes)
    (0 until changes).reverse.foreach { n =>
      Arrays.fill(wanted, n.toByte)
      expect(Arrays.equals(reader.get(KeyHash.of(key(n)), key(n)), wanted), s"the value of key $n is another")
    }
    expect(reader.get(KeyHash.of(key(changes)), key(changes)) == null, "an absent key has a value")
    val cursor = reader.cursor(key(0), null)
    (0 until changes).foreach { n =>
      Arrays.fill(wanted, n.toByte)
      expect(cursor.valid && Bytes.equal(null, cursor.valueAddress, wanted, OffHeap.arrayBase, valueBytes),
        s"the scan has another value of key $n")
      cursor.next()
    }
    expect(!cursor.valid, "the scan goes on")
    reader.close()
    base.release()
  }
}
