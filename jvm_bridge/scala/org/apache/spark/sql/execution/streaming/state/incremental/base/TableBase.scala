package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.File

import scala.jdk.CollectionConverters._

import org.rocksdb.{InfoLogLevel, Options, RocksDB}

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, Record}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.{Cursor, SstPointReader, SstTable, UnsupportedSstException}

/**
 * A base whose SSTs are memory-mapped and read here, without native calls; RocksDB is only asked which files
 * there are. Their pages are the operating system's to keep or drop: it takes nothing from the budget.
 *
 * @param runs files in which a key may be, newest first: each file of level 0 by itself, then each level, its
 *     files in key order
 */
private[base] final class TableBase private (directory: BaseDirectory, runs: Array[Array[LevelFile]])
    extends Base(directory) {
  def bytes: Long = 0

  def reader(): BaseReader = new TableBaseReader(runs)

  protected def close(): Unit = runs.foreach(_.foreach(_.table.release()))
}

private[base] object TableBase {

  /**
   * @throws UnsupportedSstException when some file is not uncompressed, or of a kind that [[SstTable]] does
   * not know
   */
  def open(directory: BaseDirectory): TableBase = {
    val files = liveFiles(directory.path)
    val (newest, levels) = files.partition(_.level == 0)
    val levelRuns = levels.groupBy(_.level).toSeq.sortBy(_._1).map { case (_, run) =>
      run.sortWith((a, b) => java.util.Arrays.compareUnsigned(a.smallest, b.smallest) < 0).toArray
    }
    new TableBase(directory, (newest.sortBy(-_.newest).map(Array(_)) ++ levelRuns).toArray)
  }

  private def liveFiles(path: String): Seq[LevelFile] = {
    var opened = List.empty[SstTable]
    try
      metadata(path).map { file =>
        val table = new SstTable(new File(path, file.fileName.stripPrefix("/")))
        opened ::= table
        if (!table.uncompressed) throw new UnsupportedSstException(s"${table.file}: it is compressed")
        LevelFile(table, file.level, file.smallestKey, file.largestKey, file.largestSeqno)
      }
    catch {
      case e: Throwable =>
        opened.foreach(_.release())
        throw e
    }
  }

  private def metadata(path: String): Seq[org.rocksdb.LiveFileMetaData] = {
    RocksDB.loadLibrary()
    val options = new Options().setInfoLogLevel(InfoLogLevel.FATAL_LEVEL).setMaxOpenFiles(16)
    try {
      val db = RocksDB.openReadOnly(options, path)
      try db.getLiveFilesMetaData.asScala.toSeq
      finally db.close()
    } finally options.close()
  }
}

/**
 * A table of a RocksDB directory and the range of its keys, both ends included.
 *
 * @param newest largest sequence number in it
 */
private[base] final case class LevelFile(
    table: SstTable,
    level: Int,
    smallest: Array[Byte],
    largest: Array[Byte],
    newest: Long) {

  def mayHold(key: Array[Byte]): Boolean =
    java.util.Arrays.compareUnsigned(key, smallest) >= 0 && java.util.Arrays.compareUnsigned(key, largest) <= 0

  /** Whether it may hold a key with from <= key < until (null: no end). */
  def overlaps(from: Array[Byte], until: Array[Byte]): Boolean =
    java.util.Arrays.compareUnsigned(from, largest) <= 0 &&
      (until == null || java.util.Arrays.compareUnsigned(until, smallest) > 0)
}

/** Reads the files of a [[TableBase]], for one transaction. */
private[base] final class TableBaseReader(runs: Array[Array[LevelFile]]) extends BaseReader {
  private val finder = new SstPointReader
  private val cursors = new java.util.ArrayList[MergingCursor]

  def get(hash: Long, key: Array[Byte]): Array[Byte] =
    if (find(hash, key) && finder.valueLength != Record.removed) Bytes.array(finder.valueAddress, finder.valueLength)
    else null

  def contains(hash: Long, key: Array[Byte]): Boolean = find(hash, key) && finder.valueLength != Record.removed

  /** Whether a file has an entry of the key; the newest is in the finder then. */
  private def find(hash: Long, key: Array[Byte]): Boolean = {
    var i = 0
    while (i < runs.length) {
      val run = runs(i)
      val file = if (run.length == 1) run(0) else run(fileOf(run, key))
      if (file.mayHold(key) && file.table.mayContain(hash) && finder.find(file.table, key)) return true
      i += 1
    }
    false
  }

  /** The first file whose largest key is not less; the last when there is none. */
  private def fileOf(run: Array[LevelFile], key: Array[Byte]): Int = {
    var low = 0
    var high = run.length - 1
    while (low < high) {
      val middle = (low + high) >>> 1
      if (java.util.Arrays.compareUnsigned(run(middle).largest, key) < 0) low = middle + 1 else high = middle
    }
    low
  }

  def cursor(from: Array[Byte], until: Array[Byte]): Cursor = {
    val cursor = new MergingCursor(runs, from, until, cursors)
    cursors.add(cursor)
    cursor
  }

  /** Closes its cursors too. */
  def close(): Unit = new java.util.ArrayList(cursors).forEach(_.close())
}
