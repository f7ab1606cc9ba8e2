package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.File
import java.nio.file.Files
import java.util.concurrent.atomic.AtomicInteger

import scala.jdk.CollectionConverters._
import scala.util.Random

import org.rocksdb.{
  BlockBasedTableConfig, BloomFilter, ChecksumType, CompactRangeOptions, CompressionType, IngestExternalFileOptions,
  Options, ReadOptions, RocksDB, SstFileReader
}

import org.apache.spark.sql.execution.streaming.state.incremental.base.{
  BaseDirectory, RestoredFiles, RestoredDelta, ManifestOracle
}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{Json, VersionId}

/**
 * A maker of bases like those of the control plane: RocksDB ingests deltas, and compacts them or not; other deltas lie
 * beside it.
 */
final class TestBases(directory: File, random: Random) {
  private var count = 0
  private val opened = new AtomicInteger

  /** The number of bases that were handed out and not given back. */
  def open: Int = opened.get

  def make(node: StateModel.Node): BaseDirectory = {
    count += 1
    val path = new File(directory, s"base-$count")
    val (restoredDeltas, below) = node.path.splitAt(if (random.nextBoolean()) 0 else random.nextInt(node.path.size + 1))
    val deltas = below.reverse.map(_.delta)
    if (deltas.isEmpty) path.mkdirs()
    else if (restoredDeltas.isEmpty) TestBases.build(path, deltas, random)
    else TestBases.build(path, deltas, random, compressed = false)
    opened.incrementAndGet()
    val database = below.headOption
    val restored = RestoredFiles(
      database.fold(VersionId.empty)(_.at),
      database.fold(0L)(_.rows.size.toLong),
      restoredDeltas.map(node => RestoredDelta(node.delta.getPath, node.at)))
    val isRemote = restoredDeltas.nonEmpty && random.nextInt(3) == 0
    BaseDirectory(
      path.getPath,
      node.at,
      if (restoredDeltas.isEmpty) node.rows.size else -1,
      () => {
        if (!path.exists) throw new AssertionError(s"$path is given back twice")
        TestFiles.delete(path)
        opened.decrementAndGet()
      },
      restored = if (restoredDeltas.isEmpty) None else if (isRemote) Some(sparse(path, restored)) else Some(restored))
  }

  /** Makes the same base with files that have only their metadata. */
  private def sparse(path: File, restored: RestoredFiles): RestoredFiles = {
    val directory = Files.createDirectory(new File(path, "deltas").toPath)
    val deltas = restored.deltas.map { delta =>
      val copy = directory.resolve(new File(delta.path).getName)
      delta.copy(path = Files.copy(new File(delta.path).toPath, copy).toString)
    }
    val tables = path.listFiles.filter(_.getName.endsWith(".sst")).toSeq
    val remote = new RemoteFiles(path, tables ++ deltas.map(delta => new File(delta.path)))
    remote.forget()
    restored.copy(deltas = deltas, sparse = remote.names, fetch = remote.fetchAll)
  }
}

object TestBases {
  RocksDB.loadLibrary()

  /** Returns the fields of the reserved record that a base checks. */
  def meta(at: VersionId, keys: Long, format: Int = 1): String =
    new String(Json.bytes(Json.obj("format" -> format, "version" -> at.number, "id" -> at.id, "keys" -> keys)),
      "US-ASCII")

  def build(path: File, deltas: Seq[File], random: Random): Unit =
    build(path, deltas, random, compressed = random.nextInt(4) == 0)

  /**
   * Builds a database of deltas.
   *
   * @param rewritten true if RocksDB rewrites all files, so that all are compressed as configured
   */
  def build(path: File, deltas: Seq[File], random: Random, compressed: Boolean, rewritten: Boolean = false): Unit = {
    val filter = new BloomFilter(10, false)
    val table = new BlockBasedTableConfig().setFormatVersion(5).setChecksumType(ChecksumType.kCRC32c)
    if (random.nextInt(5) != 0) table.setFilterPolicy(filter)
    val options = new Options()
      .setCreateIfMissing(true)
      .setDisableAutoCompactions(random.nextBoolean())
      .setCompressionType(if (compressed) CompressionType.LZ4_COMPRESSION else CompressionType.NO_COMPRESSION)
      .setTargetFileSizeBase(1L << (14 + random.nextInt(8)))
      .setMaxBytesForLevelBase(1L << (16 + random.nextInt(8)))
      .setTableFormatConfig(table)
    val ingest = new IngestExternalFileOptions().setMoveFiles(false)
    val db = RocksDB.open(options, path.getPath)
    val compactAfter = random.nextInt(deltas.size * 2 + 1)
    deltas.zipWithIndex.foreach { case (delta, i) =>
      db.ingestExternalFile(Seq(delta.getPath).asJava, ingest)
      if (i == compactAfter) db.compactRange()
    }
    if (rewritten) {
      val all =
        new CompactRangeOptions().setBottommostLevelCompaction(CompactRangeOptions.BottommostLevelCompaction.kForce)
      db.compactRange(db.getDefaultColumnFamily, null, null, all)
      all.close()
    }
    db.close()
    ingest.close()
    options.close()
    filter.close()
    ManifestOracle.check(path)
  }

  /** Reads an SST with RocksDB and checks checksums, number of entries and the reserved record. */
  def verify(file: File, entries: Long, meta: String): Unit = {
    val options = new Options
    val reader = new SstFileReader(options)
    reader.open(file.getPath)
    reader.verifyChecksum()
    val properties = reader.getTableProperties
    if (properties.getNumEntries != entries)
      throw new AssertionError(s"$file: ${properties.getNumEntries} entries, not $entries")
    val readOptions = new ReadOptions
    val iterator = reader.newIterator(readOptions)
    iterator.seekToLast()
    if (new String(iterator.value, "UTF-8") != meta) throw new AssertionError(s"$file: the reserved record is not last")
    iterator.close()
    readOptions.close()
    reader.close()
    options.close()
  }
}
