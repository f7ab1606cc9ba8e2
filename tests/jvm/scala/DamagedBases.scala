package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.{File, IOException, RandomAccessFile}
import java.nio.file.Files

import scala.jdk.CollectionConverters._
import scala.util.{Failure, Random, Success, Try}

import org.rocksdb._

import org.apache.spark.sql.execution.streaming.state.incremental.{FarFiles, TestBases, TestFiles}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.delta.{DeltaReader, DeltaWriter, OverwrittenChanges}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Arena, Bytes, KeyHash, SortedRuns, StoreMemory}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.DamagedSstException

/**
 * Bases and deltas of which a byte is not what was written, or the end is missing: who reads them gets an exception or
 * the right rows, never others, and the process lives on. Arguments: seed, number of flips.
 */
object DamagedBases {
  RocksDB.loadLibrary()

  def main(arguments: Array[String]): Unit = {
    val directory = Files.createTempDirectory("damaged-bases").toFile
    try {
      val test = new DamagedBases(new Random(arguments(0).toLong), directory)
      ChecksumType.kCRC32c :: ChecksumType.kXXH3 :: Nil foreach (test.flips(_, arguments(1).toInt))
      test.flipsInDeltas(arguments(1).toInt)
      test.flipsInDeltasBeside(arguments(1).toInt)
      test.refusesOtherDeltasBeside()
      test.readsWhatIsFar()
      test.refusesToWriteWhatCannotBeRead()
      test.refusesToWriteWhatIsNotInOrder()
      test.refusesToReadHalfADelta()
      test.cutOff()
      test.boundsMappings()
      test.endsInOrder()
      test.failedScansStayFailed()
      println("no wrong row")
    } finally TestFiles.delete(directory)
  }
}

final class DamagedBases(random: Random, directory: File) {
  private val keyCount = 3000
  private val memory = new StoreMemory(64L << 20)
  private val rows: Map[Int, Int] = (0 until keyCount).map(n => n -> n % 7).toMap ++ (0 until keyCount by 5).map(n => n -> 9)
  private val live = rows.filter { case (n, _) => n % 11 != 0 }
  private val deltas = new TestDeltas(memory, directory, key, value)
  private var count = 0

  private def expect(condition: Boolean, what: => String): Unit = if (!condition) throw new AssertionError(what)

  private def key(n: Int): Array[Byte] = Array[Byte](0, 0) ++ f"key$n%07d".getBytes("US-ASCII")
  private def value(n: Int, round: Int): Array[Byte] = Array.fill(20 + n % 90)((n * 31 + round).toByte)

  private def fresh(name: String): File = {
    count += 1
    new File(directory, s"$name-$count")
  }

  /** Several files of a level, over them one that was ingested, with newer values and removed keys. */
  private def build(checksum: ChecksumType): File = {
    val path = fresh("base")
    val filter = new BloomFilter(10, false)
    val table = new BlockBasedTableConfig().setFormatVersion(5).setFilterPolicy(filter).setChecksumType(checksum)
    val options = new Options().setCreateIfMissing(true).setDisableAutoCompactions(true).setTableFormatConfig(table)
      .setCompressionType(CompressionType.NO_COMPRESSION).setTargetFileSizeBase(64 << 10)
    val db = RocksDB.open(options, path.getPath)
    ingest(db, delta(rows.keys.map(n => n -> Some(n % 7)).toSeq, Nil))
    rewrite(db)
    ingest(db, delta(rows.keys.filter(_ % 5 == 0).map(n => n -> Some(9)).toSeq, Nil))
    ingest(db, delta(rows.keys.filter(_ % 11 == 0).map(n => n -> None).toSeq, Nil))
    Seq(db, options, filter).foreach(_.close())
    path
  }

  private def rewrite(db: RocksDB): Unit = {
    val all = new CompactRangeOptions().setBottommostLevelCompaction(CompactRangeOptions.BottommostLevelCompaction.kForce)
    db.compactRange(db.getDefaultColumnFamily, null, null, all)
    all.close()
  }

  private def ingest(db: RocksDB, file: File): Unit = {
    val options = new IngestExternalFileOptions().setMoveFiles(true)
    db.ingestExternalFile(Seq(file.getPath).asJava, options)
    options.close()
  }

  private def delta(changes: Seq[(Int, Option[Int])], replaced: Seq[(Int, Int)], meta: String = "{}"): File =
    deltas.write(fresh("delta"), meta, changes, replaced)

  private def open(path: File, cache: TableCache): Base =
    TableBase.open(BaseDirectory(path.getPath, VersionId(1, None), live.size, () => ()), cache)

  /** Reads all that there is; a difference fails, an exception is given back. */
  private def check(base: Base, scanFirst: Boolean): Option[Throwable] = {
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

  private def checkGets(reader: BaseReader): Unit = (0 until keyCount + 100).foreach { n =>
    val found = reader.get(KeyHash.of(key(n)), key(n))
    val wanted = live.get(n).map(value(n, _)).orNull
    expect(java.util.Arrays.equals(found, wanted), s"key $n: ${found == null} ${wanted == null}")
  }

  private def checkScan(reader: BaseReader): Unit = {
    val cursor = reader.cursor(Array[Byte](0, 0), null)
    live.toSeq.sorted.foreach { case (n, round) =>
      expect(cursor.valid, s"the scan ends before key $n")
      expect(Bytes.array(cursor.keyAddress, cursor.keyLength).sameElements(key(n)), s"the scan is elsewhere than at key $n")
      expect(Bytes.array(cursor.valueAddress, cursor.valueLength).sameElements(value(n, round)), s"scanned key $n")
      cursor.next()
    }
    expect(!cursor.valid, "the scan goes on")
    cursor.close()
  }

  private def flip(file: File, before: Long): Long = {
    val access = new RandomAccessFile(file, "rw")
    val at = (random.nextDouble() * before).toLong
    access.seek(at)
    val old = access.read()
    access.seek(at)
    access.write(old ^ (1 << random.nextInt(8)))
    access.close()
    at
  }

  def flips(checksum: ChecksumType, n: Int): Unit = {
    val path = build(checksum)
    val cache = new TableCache(1000)
    val whole = open(path, cache)
    expect(check(whole, scanFirst = false).isEmpty && !whole.damaged, "a whole base is not")
    whole.release()
    expect(cache.openTables == 0, "tables stay open")
    val tables = path.listFiles.filter(_.getName.endsWith(".sst"))
    expect(tables.length > 4, s"${tables.length} files are too few")
    ManifestOracle.check(path)
    expect(ManifestOracle.flips(path, n, random) == n, "a flip of the MANIFEST is not seen")
    var seen = 0
    for (i <- 0 until n) {
      val file = tables(random.nextInt(tables.length))
      val original = Files.readAllBytes(file.toPath)
      val opened = if (i % 2 == 0) Some(open(path, cache)) else None // else it is opened on the damage
      val at = flip(file, if (opened.isDefined) FarFiles.dataBytes(file).toLong else file.length)
      Try(opened.getOrElse(open(path, cache))) match {
        case Failure(_: IOException | _: RocksDBException) => seen += 1
        case Failure(e) => throw e
        case Success(base) =>
          check(base, scanFirst = i % 4 < 2).foreach { error =>
            expect(error.isInstanceOf[DamagedSstException], s"a flip of byte $at of $file ends with $error")
            expect(error.getMessage.contains(file.getPath), s"${error.getMessage} does not name $file")
            expect(base.damaged, "the base does not know")
            seen += 1
          }
          base.release()
      }
      Files.write(file.toPath, original)
    }
    expect(seen > n * 9 / 10, s"only $seen of $n flips were seen")
  }

  def flipsInDeltas(n: Int): Unit = {
    val file = delta((0 until 1000).map(n => n -> (if (n % 3 == 0) None else Some(1))), (0 until 5000).map(n => n % 1000 -> n))
    val whole = changes(file)
    expect(whole.length == 6000 && changes(file) == whole, s"${whole.length} changes")
    val original = Files.readAllBytes(file.toPath)
    val seen = (0 until n).count { _ =>
      flip(file, file.length)
      val found = Try(changes(file))
      Files.write(file.toPath, original)
      found match {
        case Failure(_: IOException) => true
        case Failure(e) => throw e
        case Success(changes) =>
          expect(changes == whole, "a damaged delta reads as something else")
          false
      }
    }
    expect(seen > n * 9 / 10, s"only $seen of $n flips of a delta were seen")
  }

  /** A database without its two newest deltas, and those; both say what they are. */
  private def buildBeside(): (File, Beside) = {
    val path = fresh("base")
    val table = new BlockBasedTableConfig().setFormatVersion(5)
    val options = new Options().setCreateIfMissing(true).setDisableAutoCompactions(true).setTableFormatConfig(table)
      .setCompressionType(CompressionType.NO_COMPRESSION).setTargetFileSizeBase(64 << 10)
    val db = RocksDB.open(options, path.getPath)
    ingest(db, delta(rows.keys.map(n => n -> Some(n % 7)).toSeq, Nil, TestBases.meta(version(1), rows.size)))
    Seq(db, options).foreach(_.close())
    val newer = delta(rows.keys.filter(_ % 5 == 0).map(n => n -> Some(9)).toSeq, Nil, TestBases.meta(version(2), rows.size))
    val newest = delta(rows.keys.filter(_ % 11 == 0).map(n => n -> None).toSeq, Nil, TestBases.meta(version(3), live.size))
    val deltas = Seq(BesideDelta(newest.getPath, version(3)), BesideDelta(newer.getPath, version(2)))
    (path, Beside(version(1), rows.size, deltas))
  }

  private def version(n: Int) = VersionId(n, Some(s"id-$n"))

  private def openBeside(path: File, beside: Beside): Base =
    Base.open(BaseDirectory(path.getPath, version(3), -1, () => (), Some(beside), () => told += 1), memory)

  private var told = 0

  def flipsInDeltasBeside(n: Int): Unit = {
    val (path, beside) = buildBeside()
    val whole = openBeside(path, beside)
    expect(check(whole, scanFirst = false).isEmpty && whole.keys == live.size, "a whole base with deltas beside it is not")
    whole.release()
    expect(told == 0, "damage is told of a whole base")
    var seen = 0
    for (i <- 0 until n) {
      val file = new File(beside.deltas(i % 2).path)
      val original = Files.readAllBytes(file.toPath)
      flip(file, file.length)
      Try(openBeside(path, beside)) match {
        case Failure(_: IOException | _: RocksDBException) => seen += 1
        case Failure(e) => throw e
        case Success(base) =>
          val before = told
          check(base, scanFirst = i % 4 < 2).foreach { error =>
            expect(error.getMessage.contains(file.getPath), s"${error.getMessage} does not name $file")
            expect(base.damaged && told == before + 1, "nobody is told")
            seen += 1
          }
          base.release()
      }
      Files.write(file.toPath, original)
    }
    expect(seen > n * 9 / 10, s"only $seen of $n flips of a delta beside a base were seen")
  }

  /** Whole files, but not those that are meant; or fewer of them. */
  def refusesOtherDeltasBeside(): Unit = {
    val (path, beside) = buildBeside()
    def refused(what: String, wrong: Beside): Unit =
      expect(Try(openBeside(path, wrong)).failed.toOption.exists(_.isInstanceOf[IOException]), s"$what is taken")
    val Seq(newest, newer) = beside.deltas
    refused("another delta", beside.copy(deltas = Seq(newest.copy(path = newer.path), newer)))
    refused("an older delta instead", beside.copy(deltas = Seq(newest, newer.copy(path = newest.path))))
    refused("a chain without its newest delta", beside.copy(deltas = Seq(newer)))
    refused("another version of the database", beside.copy(database = version(2)))
    refused("another number of keys", beside.copy(keys = rows.size - 1))
    val extra = new File(path, "000099.sst")
    Files.copy(new File(newest.path).toPath, extra.toPath)
    refused("a database that does not list a file that it was made of", beside)
    Files.delete(extra.toPath)
    openBeside(path, beside).release()
  }

  /** Files of which only the metadata is there; the rest comes when it is read, or cannot be had. */
  def readsWhatIsFar(): Unit = {
    val path = build(ChecksumType.kCRC32c)
    val far = new FarFiles(path, path.listFiles.filter(_.getName.endsWith(".sst")).toSeq)
    var isDown = false
    def fetch(name: String, offset: Long, length: Long): Unit = {
      if (isDown) throw new FarRowsException("it is down", null)
      far.fetch(name, offset, length)
    }
    val directory = BaseDirectory(path.getPath, version(1), live.size, () => (),
      Some(Beside(version(1), live.size, Nil, far.names, fetch)))
    for (scanFirst <- Seq(true, false)) {
      far.forget()
      val before = far.fetchedBytes
      val base = TableBase.open(directory, new TableCache(1000))
      expect(far.fetchedBytes == before, "opening fetches")
      isDown = true
      expect(check(base, scanFirst).exists(_.isInstanceOf[FarRowsException]), "rows that are not there are read")
      expect(!base.damaged, "what is far is taken for damaged")
      isDown = false
      expect(check(base, scanFirst).isEmpty && far.fetchedBytes > before, "what is far is not read")
      val after = far.fetchedBytes
      expect(check(base, scanFirst).isEmpty && far.fetchedBytes == after, "what is there is fetched again")
      base.release()
    }
    far.forget()
    val file = far.names.head
    val wrong = directory.copy(beside = directory.beside.map(_.copy(fetch = (_, _, _) => ())))
    val base = TableBase.open(wrong, new TableCache(1000))
    expect(check(base, scanFirst = true).exists(_.isInstanceOf[DamagedSstException]), s"a hole in $file is read")
    expect(base.damaged, "the base does not know")
    base.release()
  }

  private def changes(file: File): Seq[(Seq[Byte], Option[Seq[Byte]])] = {
    val reader = new DeltaReader(file)
    try Iterator.continually(reader).takeWhile(_.advance()).map(r => r.key.toSeq -> Option(r.value).map(_.toSeq)).toVector
    finally reader.close()
  }

  /** Where the disk gives back something else than it was given, that is no commit. */
  def refusesToWriteWhatCannotBeRead(): Unit = {
    val other = delta(Seq(1 -> Some(1)), Nil)
    val access = new RandomAccessFile(other, "rw")
    access.setLength(access.length - 1)
    access.close()
    val real = fresh("delta")
    val lying = new File(other.getPath) { // written to one place, and read from another
      override def toPath: java.nio.file.Path = real.toPath
    }
    val written = Try(writer(Seq(1 -> Some(1)), 1)(_.write(lying, meta, 1, 0)))
    expect(written.failed.toOption.exists(_.getMessage.contains(other.getPath)), s"$written")
    expect(!real.exists, "the file stays")
  }

  /** Who counts or sorts wrong gets no file. */
  def refusesToWriteWhatIsNotInOrder(): Unit = {
    type Changes = Seq[(Int, Option[Int])]
    def refused(says: String, changes: Changes, count: Int, puts: Long, removes: Long, sorted: Boolean = true): Unit = {
      val file = fresh("delta")
      val written = Try(writer(changes, count, sorted)(_.write(file, meta, puts, removes)))
      expect(written.failed.toOption.exists(_.getMessage.contains(says)), s"$written, not $says")
      expect(!file.exists, "the file stays")
    }
    val two = Seq(1 -> Some(1), 2 -> None)
    refused("Key 2 of an SST is not greater", two.reverse, 2, 1, 1, sorted = false)
    refused("Key 2 of an SST is not greater", Seq(1 -> Some(1), 1 -> None), 2, 1, 1)
    refused("was to have 4 keys and got 3", two, 3, 1, 1)
    refused("2 records, of which 1 remove", two, 2, 2, 0)
    refused("2 records, of which 1 remove", two, 2, 2, 1)
  }

  /**
   * A delta that ends before its end, or has something behind the reserved record, is no delta. With keys as short as
   * these an index block has 12 to 18 bytes; RocksDB protects it with XXH3, which hashes up to 16 bytes otherwise.
   */
  def refusesToReadHalfADelta(): Unit = for (keys <- (0 to 6).map(n => Seq("a" * n, "a" * n + "b")) :+ Seq("a", "\uffff\uffff")) {
    val file = fresh("half")
    val environment = new EnvOptions
    val options = new Options().setCompressionType(CompressionType.NO_COMPRESSION)
      .setTableFormatConfig(new BlockBasedTableConfig().setFormatVersion(5))
    val sst = new SstFileWriter(environment, options)
    sst.open(file.getPath)
    keys.foreach(key => sst.put(key.map(_.toByte).toArray, Array[Byte](1)))
    sst.finish()
    Seq(sst, environment, options).foreach(_.close())
    val found = Try(changes(file))
    expect(found.failed.toOption.exists(_.getMessage.contains("is no whole delta")), s"$found")
  }

  private val meta = "{}".getBytes("US-ASCII")

  private def writer[T](changes: Seq[(Int, Option[Int])], count: Int, sorted: Boolean = true)(use: DeltaWriter => T): T = {
    val arena = new Arena(memory, directory)
    val overwritten = new OverwrittenChanges(memory, directory)
    val records = new SortedRuns(memory, directory)
    val all = changes.map { case (n, round) => deltas.record(arena, n, round) }
    if (sorted) records.addUnsorted(all.foreach, _ => true) else records.add(all.toArray, _ => true)
    try use(new DeltaWriter(records, count, overwritten, memory, directory))
    finally {
      records.free()
      arena.free()
      overwritten.free()
    }
  }

  /** Files that become shorter: before they are opened, when they are open, and when all of them was read once. */
  def cutOff(): Unit = for (when <- Seq("before", "open", "read"); part <- Seq(0.0, 0.3, 0.9)) {
    val path = build(ChecksumType.kCRC32c)
    val file = path.listFiles.filter(_.getName.endsWith(".sst")).maxBy(_.length)
    var named = 0
    def cut(): Unit = {
      val access = new RandomAccessFile(file, "rw")
      access.setLength((file.length * part).toLong)
      access.close()
    }
    val cache = new TableCache(1000)
    if (when == "before") cut()
    Try(open(path, cache)) match {
      case Failure(_: IOException | _: RocksDBException) => expect(when == "before", "a base cannot be opened")
      case Failure(e) => throw e
      case Success(base) =>
        if (when == "read") expect(check(base, scanFirst = false).isEmpty, "a whole base is not")
        cut()
        for (scanFirst <- Seq(true, false)) {
          val error = check(base, scanFirst)
          expect(error.exists(e => e.isInstanceOf[IOException] || e.isInstanceOf[InternalError]), s"cut off when $when: $error")
          if (error.exists(_.isInstanceOf[IOException])) {
            expect(error.get.getMessage.contains(file.getPath), s"${error.get.getMessage} does not name $file")
            expect(base.damaged, "the base does not know")
            named += 1
          }
        }
        base.release()
    }
    TestFiles.delete(path)
    expect(when == "before" || named > 0, "no exception names the file")
  }

  private def mapped(): Int = {
    val maps = scala.io.Source.fromFile("/proc/self/maps")
    try maps.getLines().count(_.contains(directory.getPath))
    finally maps.close()
  }

  /** Many stores with many deltas each: what is mapped stays below the bound, and everything can be read. */
  def boundsMappings(): Unit = {
    val cache = new TableCache(20)
    val path = build(ChecksumType.kCRC32c)
    val filesEach = path.listFiles.count(_.getName.endsWith(".sst"))
    val bases = (0 until 15).map { i =>
      val copy = fresh("copy")
      copy.mkdir()
      path.listFiles.filter(_.getName != "LOCK").foreach(f => Files.copy(f.toPath, new File(copy, f.getName).toPath))
      open(copy, cache)
    }
    expect(cache.openTables <= 20 && mapped() <= 20, s"${cache.openTables} tables are open, ${mapped()} mapped")
    expect(bases.length * filesEach > 4 * 20, "there are too few files")
    random.shuffle(bases).foreach { base =>
      val reader = base.reader()
      checkGets(reader)
      checkScan(reader)
      expect(mapped() <= 20 + filesEach, s"${mapped()} are mapped")
      reader.close()
      expect(cache.openTables <= 20 && mapped() <= 20, s"${cache.openTables} tables are open, ${mapped()} mapped")
    }
    val threads = (0 until 4).map { i =>
      val thread = new Thread(() =>
        new Random(i).shuffle(bases).foreach(base => expect(check(base, i % 2 == 0).isEmpty, "threads")))
      val failed = new java.util.concurrent.atomic.AtomicReference[Throwable]
      thread.setUncaughtExceptionHandler((_, e) => failed.set(e))
      thread.start()
      thread -> failed
    }
    threads.foreach { case (thread, failed) =>
      thread.join()
      if (failed.get != null) throw failed.get
    }
    expect(cache.openTables <= 20, s"${cache.openTables} tables are open")
    bases.foreach(_.release())
    expect(cache.openTables == 0 && mapped() == 0, s"${cache.openTables} tables stay open, ${mapped()} mapped")
  }

  /** A scan that met a damaged block has no end: who takes the exception for one would miss rows. */
  def failedScansStayFailed(): Unit = {
    val path = build(ChecksumType.kCRC32c)
    val file = path.listFiles.filter(_.getName.endsWith(".sst")).maxBy(_.length)
    val access = new RandomAccessFile(file, "rw")
    access.seek(FarFiles.dataBytes(file).toLong - 20)
    access.write(Array.fill[Byte](4)(77))
    access.close()
    val base = open(path, new TableCache(1000))
    val reader = base.reader()
    val scan = reader.cursor(Array[Byte](0, 0), null)
    val ended = Try(while (scan.valid) scan.next())
    expect(ended.failed.toOption.exists(_.isInstanceOf[DamagedSstException]), s"the scan ended: $ended")
    expect(Try(scan.valid).isFailure && base.damaged, "the scan ends quietly")
    reader.close()
    base.release()
  }

  /** Readers and scans that are used after their end, or after that of their base. */
  def endsInOrder(): Unit = {
    val cache = new TableCache(1000)
    val base = open(build(ChecksumType.kCRC32c), cache)
    val reader = base.reader()
    val scan = reader.cursor(Array[Byte](0, 0), null)
    checkGets(reader)
    base.release()
    checkGets(reader) // it holds what it looked into
    scan.next()
    expect(scan.valid, "a scan ends with its base")
    reader.close()
    expect(cache.openTables == 0 && mapped() == 0, s"${mapped()} are mapped")
    val late = Seq[() => Any](() => reader.get(KeyHash.of(key(1)), key(1)), () => reader.cursor(key(1), null), () => scan.next(),
      () => base.reader().get(KeyHash.of(key(1)), key(1)))
    late.foreach(use => expect(Try(use()).failed.toOption.exists(_.isInstanceOf[IllegalStateException]), "used after its end"))
  }
}
