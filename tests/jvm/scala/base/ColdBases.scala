package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.{File, RandomAccessFile}
import java.nio.channels.FileChannel
import java.nio.file.attribute.FileTime
import java.nio.file.{Files, Paths}

import scala.util.Random

import org.rocksdb.{ChecksumType, RocksDB}

import org.apache.spark.sql.execution.streaming.state.incremental.TestFiles
import org.apache.spark.sql.execution.streaming.state.incremental.memory.OffHeap

/**
 * Bases whose files are not in the operating system's cache. The first read waits for the disk in system calls, for
 * which no garbage collection waits, and not in page faults, which would stop all threads. The directory for temporary
 * files must be on a disk.
 */
object ColdBases {
  def main(arguments: Array[String]): Unit = {
    RocksDB.loadLibrary()
    val directory = Files.createTempDirectory("cold-bases").toFile
    try {
      val files = new WholeBases(new Random(1), directory)
      val path = files.build(ChecksumType.kCRC32c)
      val ways = Seq[BaseReader => Unit](files.checkGets, files.checkScan)
      ways.foreach(faults(files, path, _)) // loads the classes
      val touched = Seq.fill(3)(faultsOfMappings(files.tablesOf(path))).min
      files.expect(touched >= 3, s"only $touched page faults read the files, which are to be on a disk")
      ways.foreach { way =>
        val fewest = Seq.fill(3)(faults(files, path, way)).min
        files.expect(fewest == 0, s"$fewest page faults wait for the disk")
      }
      println("no page fault waits for the disk")
    } finally TestFiles.delete(directory)
  }

  private var changes = 0L

  /** Returns the number of page faults of this thread that waited for a disk. */
  private def majorFaults: Long =
    new String(Files.readAllBytes(Paths.get("/proc/thread-self/stat"))).split(" ")(11).toLong

  private def during(action: => Unit): Long = {
    val before = majorFaults
    action
    majorFaults - before
  }

  private def faults(files: WholeBases, path: File, read: BaseReader => Unit): Long = {
    forget(files.tablesOf(path))
    val base = files.open(path, new TableCache(1000))
    val reader = base.reader()
    try during(read(reader))
    finally {
      reader.close()
      base.release()
    }
  }

  private def faultsOfMappings(tables: Seq[File]): Long = {
    forget(tables)
    val mappings = tables.map { table =>
      val file = new RandomAccessFile(table, "r")
      try file.getChannel.map(FileChannel.MapMode.READ_ONLY, 0, file.length)
      finally file.close()
    }
    try during(mappings.foreach(mapping => (0 until mapping.capacity by 4096).foreach(mapping.get(_))))
    finally mappings.foreach { mapping =>
        OffHeap.mapped(mapping)
        OffHeap.dispose(mapping)
      }
  }

  /** Drops tables, which nobody has mapped, from the operating system's cache. */
  private def forget(tables: Seq[File]): Unit = tables.foreach { table =>
    val drop = Seq("dd", s"of=$table", "oflag=nocache", "conv=notrunc,fdatasync", "count=0", "status=none")
    val ended = new ProcessBuilder(drop: _*).inheritIO().start().waitFor()
    if (ended != 0) throw new AssertionError(s"dd ended with $ended")
    changes += 1
    Files.setLastModifiedTime(table.toPath, FileTime.fromMillis(changes)) // makes it a file that nobody has verified
  }
}
