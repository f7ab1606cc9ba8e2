package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.File

import scala.jdk.CollectionConverters._

import org.rocksdb.{InfoLogLevel, Options, RocksDB}

/**
 * A base whose SSTs are memory-mapped and read here, without native calls; RocksDB is only asked which files
 * there are. Their pages are the operating system's to keep or drop: it takes nothing from the budget.
 *
 * @param runs files in which a key may be, newest first: each file of level 0 by itself, then each level, its
 *     files in key order
 */
private[incremental] final class TableBase private (directory: BaseDirectory, runs: Array[Array[LevelFile]])
    extends Base(directory) {
  def bytes: Long = 0

  def reader(): BaseReader = new TableBaseReader(runs)

  protected def close(): Unit = runs.foreach(_.foreach(_.table.release()))
}

private[incremental] object TableBase {

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
