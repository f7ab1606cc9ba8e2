package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.{File, IOException, RandomAccessFile}
import java.nio.file.Files

import scala.jdk.CollectionConverters._
import scala.util.Random

import org.rocksdb.{
  BlockBasedTableConfig, BloomFilter, ChecksumType, CompactRangeOptions, CompressionType, IngestExternalFileOptions,
  Options, RocksDB
}

import org.apache.spark.sql.execution.streaming.state.incremental.TestBases
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, KeyHash, StoreMemory}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.DeltaReader

/**
 * Good bases and deltas in a directory, and the rows that must be read of them.
 *
 * @param random chooses the byte that is flipped
 */
final class WholeBases(val random: Random, val directory: File) {
  val keyCount = 3000
  val memory = new StoreMemory(64L << 20)
  val rows: Map[Int, Int] = (0 until keyCount).map(n => n -> n % 7).toMap ++ (0 until keyCount by 5).map(n => n -> 9)
  val live: Map[Int, Int] = rows.filter { case (n, _) => n % 11 != 0 }
  val deltas = new TestDeltas(memory, directory, key, value)
  private var count = 0

  def expect(condition: Boolean, message: => String): Unit = if (!condition) throw new AssertionError(message)

  def key(n: Int): Array[Byte] = Array[Byte](0, 0) ++ s"key${(10000000 + n).toString.substring(1)}".getBytes("US-ASCII")
  def value(n: Int, round: Int): Array[Byte] = Array.fill(20 + n % 90)((n * 31 + round).toByte)

  def fresh(name: String): File = {
    count += 1
    new File(directory, s"$name-$count")
  }

  /** Builds several files of a level, and over them a file that was ingested, with newer values and removed keys. */
  def build(checksum: ChecksumType, compressed: Boolean = false): File = {
    val path = fresh("base")
    val filter = new BloomFilter(10, false)
    val table = new BlockBasedTableConfig().setFormatVersion(5).setFilterPolicy(filter).setChecksumType(checksum)
    val options = new Options().setCreateIfMissing(true).setDisableAutoCompactions(true).setTableFormatConfig(table)
      .setCompressionType(if (compressed) CompressionType.LZ4_COMPRESSION else CompressionType.NO_COMPRESSION)
      .setTargetFileSizeBase(if (compressed) 1 << 20 else 64 << 10)
    val db = RocksDB.open(options, path.getPath)
    ingest(db, delta(rows.keys.map(n => n -> Some(n % 7)).toSeq, Nil))
    rewrite(db)
    ingest(db, delta(rows.keys.filter(_ % 5 == 0).map(n => n -> Some(9)).toSeq, Nil))
    ingest(db,
      delta(rows.keys.filter(_ % 11 == 0).map(n => n -> None).toSeq, Nil, TestBases.meta(version(1), live.size)))
    if (compressed) rewrite(db)
    Seq(db, options, filter).foreach(_.close())
    path
  }

  private def rewrite(db: RocksDB): Unit = {
    val all =
      new CompactRangeOptions().setBottommostLevelCompaction(CompactRangeOptions.BottommostLevelCompaction.kForce)
    db.compactRange(db.getDefaultColumnFamily, null, null, all)
    all.close()
  }

  private def ingest(db: RocksDB, file: File): Unit = {
    val options = new IngestExternalFileOptions().setMoveFiles(true)
    db.ingestExternalFile(Seq(file.getPath).asJava, options)
    options.close()
  }

  def delta(changes: Seq[(Int, Option[Int])], replaced: Seq[(Int, Int)], meta: String = """{"format":1}"""): File =
    deltas.write(fresh("delta"), meta, changes, replaced)

  def open(path: File, cache: TableCache): Base =
    Base.open(BaseDirectory(path.getPath, VersionId(1, None), live.size, () => ()), memory, cache)

  def openReporting(path: File): Base =
    Base.open(BaseDirectory(path.getPath, version(1), live.size, () => (), onDamage = () => reports += 1), memory)

  def tablesOf(path: File): Seq[File] = path.listFiles.toSeq.filter(_.getName.endsWith(".sst"))

  /** Reads all rows. A difference fails; an exception is returned. */
  def check(base: Base, scanFirst: Boolean): Option[Throwable] = {
    val reader = base.reader()
    try {
      val ways = Seq(() => checkGets(reader), () => checkScan(reader))
      (if (scanFirst) ways.reverse else ways).foreach(_())
      Thread.sleep(1) // the JVM may throw an InternalError a little late
      None
    } catch {
      case e: AssertionError =>
        try Thread.sleep(1)
        catch { case late: InternalError => return Some(late) }
        throw e
      case e: Throwable => Some(e)
    } finally reader.close()
  }

  def checkGets(reader: BaseReader): Unit = (0 until keyCount + 100).foreach(checkGet(reader, _))

  /** Looks up each key, whatever error the look-ups before had. Returns the number of errors. */
  def checkEach(base: Base): Int = {
    val reader = base.reader()
    try (0 until keyCount + 100).count { n =>
        try {
          checkGet(reader, n)
          false
        } catch { case _: IOException => true }
      }
    finally reader.close()
  }

  private def checkGet(reader: BaseReader, n: Int): Unit = {
    val found = reader.get(KeyHash.of(key(n)), key(n))
    val wanted = live.get(n).map(value(n, _)).orNull
    expect(java.util.Arrays.equals(found, wanted), s"key $n: ${found == null} ${wanted == null}")
  }

  def checkScan(reader: BaseReader): Unit = {
    val cursor = reader.cursor(Array[Byte](0, 0), null)
    live.toSeq.sorted.foreach { case (n, round) =>
      expect(cursor.valid, s"the scan ends before key $n")
      expect(Bytes.array(cursor.keyAddress, cursor.keyLength).sameElements(key(n)),
        s"the scan is elsewhere than at key $n")
      expect(Bytes.array(cursor.valueAddress, cursor.valueLength).sameElements(value(n, round)), s"scanned key $n")
      cursor.next()
    }
    expect(!cursor.valid, "the scan goes on")
    cursor.close()
  }

  /** Flips a bit of a random byte among the first `before` bytes. Returns its offset. */
  def flip(file: File, before: Long): Long = {
    val access = new RandomAccessFile(file, "rw")
    val at = (random.nextDouble() * before).toLong
    access.seek(at)
    val old = access.read()
    access.seek(at)
    access.write(old ^ (1 << random.nextInt(8)))
    access.close()
    renew(file)
    at
  }

  /** Writes a file again. */
  def writeAgain(file: File, content: Array[Byte]): Unit = {
    Files.write(file.toPath, content)
    renew(file)
  }

  /**
   * Gives a file that was written again a time of its own, by which its verified parts are forgotten: two writes within
   * 4 ms, a tick of the kernel's clock, have the same.
   */
  def renew(file: File): Unit = {
    renewals += 1
    expect(file.setLastModified(renewals * 1000L), s"$file gets no time")
  }

  def version(n: Int): VersionId = VersionId(n, Some(s"id-$n"))

  /** Number of reports of damage. */
  var reports = 0

  private var renewals = 0

  /** Returns the changes of a delta. */
  def changes(file: File): Seq[(Seq[Byte], Option[Seq[Byte]])] = {
    val reader = new DeltaReader(file)
    try
      Iterator.continually(reader).takeWhile(_.advance()).map(r => r.key.toSeq -> Option(r.value).map(_.toSeq)).toVector
    finally reader.close()
  }

  /** Builds a database without its two newest deltas, and the deltas. */
  def buildRestored(): (File, RestoredFiles) = {
    val path = fresh("base")
    val table = new BlockBasedTableConfig().setFormatVersion(5).setChecksumType(ChecksumType.kCRC32c)
    val options = new Options().setCreateIfMissing(true).setDisableAutoCompactions(true).setTableFormatConfig(table)
      .setCompressionType(CompressionType.NO_COMPRESSION).setTargetFileSizeBase(64 << 10)
    val db = RocksDB.open(options, path.getPath)
    ingest(db, delta(rows.keys.map(n => n -> Some(n % 7)).toSeq, Nil, TestBases.meta(version(1), rows.size)))
    Seq(db, options).foreach(_.close())
    val newer = delta(rows.keys.filter(_ % 5 == 0).map(n => n -> Some(9)).toSeq, Nil,
      TestBases.meta(version(2), rows.size))
    val newest = delta(rows.keys.filter(_ % 11 == 0).map(n => n -> None).toSeq, Nil,
      TestBases.meta(version(3), live.size))
    val deltas = Seq(RestoredDelta(newest.getPath, version(3)), RestoredDelta(newer.getPath, version(2)))
    (path, RestoredFiles(version(1), rows.size, deltas))
  }

  def openRestored(path: File, restored: RestoredFiles): Base =
    Base.open(BaseDirectory(path.getPath, version(3), -1, () => (), Some(restored), () => reports += 1), memory)
}
