package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.{File, IOException}
import java.nio.file.{Files, Path}
import java.util.concurrent.locks.ReentrantLock

import scala.util.Try

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{Reserved, VersionId}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, KeyHash, OffHeap, Record, StoreMemory}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.{
  Cursor, DamagedSstException, MissingBytes, PageUses, SstPointReader, SstTable, Verified
}

/**
 * A base whose SSTs are memory-mapped and read here, without native calls. The operating system keeps or drops their
 * pages: the base takes nothing from the budget.
 *
 * @param runs files that may have a key, newest first: each file of level 0 by itself, then each level with its files
 *     in key order
 */
private[base] final class TableBase private (
    directory: BaseDirectory,
    runs: Array[Array[LevelFile]],
    memory: StoreMemory)
    extends Base(directory) {
  def bytes: Long = 0

  def reader(): BaseReader =
    new TableBaseReader(runs, noteFailure, directory.restored.filter(_.sparse.nonEmpty), memory)

  /** The complete files by name. A sparse file is verified when its last bytes are fetched. */
  private lazy val completeFiles: Map[String, LevelFile] =
    runs.iterator.flatten.filterNot(_.table.isSparse).map(file => file.table.file.getName -> file).toMap

  override def unreadFiles: Map[String, Long] = completeFiles.map { case (name, file) => name -> file.bytes }

  override def verifyUnread(file: String, from: Int): Option[VerifiedStretch] =
    completeFiles.get(file).flatMap { levelFile =>
      try {
        val held = levelFile.table.hold()
        try held.verifyUnread(from).map { case (next, bytes) => VerifiedStretch(next, bytes) }
        finally levelFile.table.release()
      } catch { case e @ (_: DamagedSstException | _: InternalError) => throw noteFailure(e) }
    }

  /**
   * Explains the error of a mapped page: the operating system does not say which file failed, so the files' lengths are
   * compared.
   */
  override protected def explained(error: InternalError): Throwable =
    runs.iterator.flatten.find(_.isCutOff).map(_.cutOff(error)).getOrElse(super.explained(error))

  protected def close(): Unit = runs.foreach(_.foreach(_.table.drop()))
}

private[base] object TableBase {

  /**
   * Opens the files of a directory.
   *
   * @throws UnsupportedSstException if some file is compressed, or of a kind that [[SstTable]] does not know
   * @throws IOException if some file is damaged or cannot be read
   */
  def open(directory: BaseDirectory, cache: TableCache, memory: StoreMemory): TableBase =
    new TableBase(directory, new TableBaseOpening(directory, cache).open().toArray, memory)
}

/** Opens the files of a [[TableBase]], as its runs. If that fails no file stays open. */
private final class TableBaseOpening(directory: BaseDirectory, cache: TableCache) {
  private var opened = List.empty[CachedTable]

  def open(): Seq[Array[LevelFile]] =
    try directory.restored match {
        case None => databaseRuns(directory.keys)
        case Some(restored) => restored.deltas.map(delta => Array(deltaFile(delta))) ++ restoredRuns(restored)
      }
    catch {
      case e: Throwable =>
        opened.foreach(_.drop())
        throw e
    }

  /** Returns the runs of a database that nobody has opened yet, after a check that it is the expected one. */
  private def restoredRuns(restored: RestoredFiles): Seq[Array[LevelFile]] =
    if (restored.database.number == 0) Nil
    else {
      val runs = databaseRuns(restored.keys)
      checkNames(runs)
      if (restored.deltas.nonEmpty) check(runs.toArray, directory.path, restored.database, restored.keys)
      runs
    }

  private def check(runs: Array[Array[LevelFile]], path: String, version: VersionId, keys: Long): Unit =
    Base.checkRecord(new TableBaseReader(runs, identity), path, version, keys)

  private def deltaFile(delta: RestoredDelta): LevelFile = {
    val file = new File(delta.path)
    val run = LevelFile(table(file), file.length, 0, Array.emptyByteArray, Reserved.metaKey, 0)
    check(Array(Array(run)), delta.path, delta.version, -1)
    run
  }

  /** Checks that the database lists the files that are in the directory: a MANIFEST without its end lists fewer. */
  private def checkNames(runs: Seq[Array[LevelFile]]): Unit = {
    val listed = runs.flatten.map(_.table.file.getName).toSet
    val present = new File(directory.path).list().filter(_.endsWith(".sst")).toSet
    if (listed != present) {
      throw new IOException(s"The database in ${directory.path} lists other files than it was made of: " +
        ((listed | present) &~ (listed & present)).toSeq.sorted.mkString(", "))
    }
  }

  private def missingIn(file: File): MissingBytes =
    directory.restored.filter(_.sparse.nonEmpty).flatMap { restored =>
      val sparseName = new File(directory.path).toPath.relativize(file.toPath).toString
      if (!restored.sparse(sparseName)) None
      else Some(new MissingBytes {
        override def name: String = sparseName

        def fetch(offset: Long, length: Long): Unit = restored.fetch(Seq((name, offset, length)))

        override def read(offset: Long, length: Int): Array[Byte] =
          restored.tryRead(name, offset, length).orNull

        override def openUses(): PageUses =
          if (restored.pageBytes == 0) null else new PageUses(new File(file.getPath + ".uses"), restored.pageBytes)
      })
    }.orNull

  private def databaseRuns(keys: Long): Seq[Array[LevelFile]] = {
    val (newest, levels) = liveFiles(keys).partition(_.level == 0)
    val levelRuns = levels.groupBy(_.level).toSeq.sortBy(_._1).map { case (_, run) =>
      run.sortWith((a, b) => java.util.Arrays.compareUnsigned(a.smallest, b.smallest) < 0).toArray
    }
    newest.sortBy(-_.newest).map(Array(_)) ++ levelRuns
  }

  private def liveFiles(keys: Long): Seq[LevelFile] = {
    val files = DatabaseManifest.files(new File(directory.path)).map { file =>
      LevelFile(
        table(new File(directory.path, file.name)), file.bytes, file.level, file.smallest, file.largest, file.newest)
    }
    files.find(_.isOtherLength).foreach(file => throw file.otherLength)
    if (directory.restored.isEmpty) checkEntries(files, keys)
    files
  }

  /**
   * Checks that the files have enough entries, which opens each of them. Restored files are opened when they are read,
   * since the restore has compared each with its length and checksum.
   */
  private def checkEntries(files: Seq[LevelFile], keys: Long): Unit = {
    val entries = files.iterator.map(_.entries).sum
    if (entries < keys) {
      throw new IOException(s"The files of ${directory.path} have $entries entries, and there should be $keys keys")
    }
  }

  private def table(file: File): CachedTable = {
    val table = new CachedTable(file, cache, missingIn(file))
    opened ::= table
    table
  }
}

/**
 * A table of a RocksDB directory and the range of its keys, both ends included.
 *
 * @param bytes length of its file
 * @param newest largest sequence number in it
 */
private[base] final case class LevelFile(
    table: CachedTable,
    bytes: Long,
    level: Int,
    smallest: Array[Byte],
    largest: Array[Byte],
    newest: Long) {

  /** Number of entries. This opens the file: a file that cannot be read, or only by RocksDB, is known then. */
  def entries: Long = {
    val held = table.hold()
    try held.entries
    finally table.release()
  }

  /** Returns true if a key is in the range of the file. */
  def mayHold(key: Array[Byte]): Boolean =
    java.util.Arrays.compareUnsigned(key, smallest) >= 0 && java.util.Arrays.compareUnsigned(key, largest) <= 0

  /** Returns true if the file may have a key with from <= key < until (null: no end). */
  def overlaps(from: Array[Byte], until: Array[Byte]): Boolean =
    java.util.Arrays.compareUnsigned(from, largest) <= 0 &&
      (until == null || java.util.Arrays.compareUnsigned(until, smallest) > 0)

  def isOtherLength: Boolean = table.file.length != bytes

  def otherLength: DamagedSstException =
    new DamagedSstException(table.file, table.file.length,
      s"the file ends there, and the database lists it with $bytes bytes")

  def isCutOff: Boolean = table.file.length < bytes

  def cutOff(cause: Throwable): DamagedSstException =
    new DamagedSstException(table.file, table.file.length, s"the file ends there, and had $bytes bytes", cause)
}

/**
 * A reader of the files of a [[TableBase]], for one transaction. It holds each file that it has looked into.
 *
 * @param sparse the restored files if parts of them may be missing
 * @param memory gives memory for rows that are read ahead; null: none are
 */
private[base] final class TableBaseReader(
    private val runs: Array[Array[LevelFile]],
    failed: Throwable => Throwable,
    sparse: Option[RestoredFiles] = None,
    memory: StoreMemory = null)
    extends BaseReader {
  private val ahead = sparse.map(
    new RowsAhead(_, memory, sparseBytes, blocksOf,
      key => valueOf(KeyHash.of(key), key), lender => finder.borrow(lender))
  ).orNull
  private val finder = new SstPointReader
  private val cursors = new java.util.ArrayList[MergingCursor]

  /** The tables that are held, by run and file. */
  private val held = new Array[Array[SstTable]](runs.length)
  private var open = true
  private var filterCount = 0L
  private var blockCount = 0L
  private var aheadCount = 0L

  override def filters: Long = filterCount
  override def blocks: Long = blockCount
  override def blocksAhead: Long = aheadCount

  def get(hash: Long, key: Array[Byte]): Array[Byte] =
    try if (ahead == null) valueOf(hash, key) else ahead.get(key).getOrElse(valueOf(hash, key))
    catch { case e: Throwable => throw failed(e) }

  private def valueOf(hash: Long, key: Array[Byte]): Array[Byte] =
    if (isThere(hash, key)) Bytes.array(finder.valueAddress, finder.valueLength) else null

  private def isThere(hash: Long, key: Array[Byte]): Boolean = find(hash, key) && finder.valueLength != Record.removed

  def contains(hash: Long, key: Array[Byte]): Boolean =
    try if (ahead == null) isThere(hash, key) else ahead.get(key).fold(isThere(hash, key))(_ != null)
    catch { case e: Throwable => throw failed(e) }

  override def expect(keys: Iterable[Array[Byte]]): Unit =
    try if (ahead != null) aheadCount += ahead.read(keys)
    catch { case e: Throwable => throw failed(e) }

  override def inherit(from: BaseReader): Unit = from match {
    case other: TableBaseReader if ahead != null && other.ahead != null && (other.runs eq runs) =>
      ahead.inherit(other.ahead)
    case _ => ()
  }

  /** Bytes of the sparse files. */
  private def sparseBytes: Long = runs.iterator.flatten.filter(_.table.isSparse).map(_.bytes).sum

  /** Passes the blocks of sparse files that may have a key to a function. */
  private def blocksOf(key: Array[Byte], add: (SstTable, Int) => Unit): Unit = {
    val hash = KeyHash.of(key)
    for (i <- runs.indices) {
      val n = if (runs(i).length == 1) 0 else fileOf(runs(i), key)
      if (runs(i)(n).mayHold(key)) {
        val table = tableAt(i, n)
        if (table.isSparse && table.mayContain(hash)) add(table, table.blockOf(key, OffHeap.arrayBase, key.length))
      }
    }
  }

  /** Looks for the newest entry of a key. Returns true if there is one, which the finder shows then. */
  private def find(hash: Long, key: Array[Byte]): Boolean = {
    var i = 0
    while (i < runs.length) {
      val run = runs(i)
      val n = if (run.length == 1) 0 else fileOf(run, key)
      if (run(n).mayHold(key)) {
        val table = tableAt(i, n)
        filterCount += 1
        if (table.mayContain(hash)) {
          blockCount += 1
          if (finder.find(table, key)) return true
        }
      }
      i += 1
    }
    false
  }

  /** Returns the first file whose largest key is not less than the key, or the last file. */
  private def fileOf(run: Array[LevelFile], key: Array[Byte]): Int = {
    var low = 0
    var high = run.length - 1
    while (low < high) {
      val middle = (low + high) >>> 1
      if (java.util.Arrays.compareUnsigned(run(middle).largest, key) < 0) low = middle + 1 else high = middle
    }
    low
  }

  private def tableAt(run: Int, n: Int): SstTable = {
    val tables = held(run)
    val table = if (tables == null) null else tables(n)
    if (table == null) hold(run, n) else table
  }

  private def hold(run: Int, n: Int): SstTable = {
    check()
    if (held(run) == null) held(run) = new Array[SstTable](runs(run).length)
    held(run)(n) = runs(run)(n).table.hold()
    held(run)(n)
  }

  private def check(): Unit = if (!open) throw new IllegalStateException("A reader of a base is closed")

  def cursor(from: Array[Byte], until: Array[Byte]): Cursor = {
    check()
    val cursor = new MergingCursor(runs, from, until, cursors, failed)
    cursors.add(cursor)
    cursor
  }

  /** Closes the reader and its cursors. May be called repeatedly. */
  def close(): Unit = {
    open = false
    if (ahead != null) ahead.close()
    finder.close()
    new java.util.ArrayList(cursors).forEach(_.close())
    for (run <- runs.indices; tables = held(run) if tables != null) {
      held(run) = null
      for (n <- tables.indices if tables(n) != null) runs(run)(n).table.release()
    }
  }
}

/**
 * Bounds the mappings of SSTs over all stores of an executor: beyond a limit of the operating system
 * (`vm.max_map_count`) nothing in the process gets memory any more, neither a thread nor the C heap. Tables without
 * readers stay open up to the bound; above it the tables that were not used for the longest time are closed, and opened
 * again on demand. Any number of threads.
 *
 * @param maxMappings mappings of open tables; there are more only while more tables are being read
 * @param map opens the table in a file, as [[SstTable.map]] does
 */
private[base] final class TableCache(
    maxMappings: Int,
    private[base] val map: (File, MissingBytes) => SstTable = SstTable.map(_, _))
    extends Logging {

  /** Open tables without readers, the longest unused first. */
  private val resting = new java.util.LinkedHashSet[CachedTable]
  private var mapped = 0
  private var warned = false

  /** Number of mappings of open tables. */
  def mappings: Int = synchronized(mapped)

  private[base] def opened(table: SstTable): Unit = synchronized(mapped += table.mappings)
  private[base] def closed(table: SstTable): Unit = synchronized(mapped -= table.mappings)
  private[base] def rests(table: CachedTable): Unit = synchronized(resting.add(table))
  private[base] def wakes(table: CachedTable): Unit = synchronized(resting.remove(table))

  /** Closes unused tables down to the bound. The caller holds no table's lock. */
  private[base] def trim(): Unit = closeDownTo(maxMappings)

  /** Closes all unused tables. The caller holds no table's lock. */
  private[base] def closeResting(): Unit = closeDownTo(0)

  private def closeDownTo(bound: Int): Unit = {
    var table = oldestAbove(bound)
    while (table != null) {
      table.closeIfResting()
      table = oldestAbove(bound)
    }
  }

  private def oldestAbove(bound: Int): CachedTable = synchronized {
    if (mapped <= bound || resting.isEmpty) null
    else {
      if (!warned) {
        warned = true
        logWarning(
          s"files of the state take $mapped mappings, the most for this process: files are now closed and opened " +
            "again on demand. Merge more often, use fewer partitions or raise vm.max_map_count")
      }
      val oldest = resting.iterator.next()
      resting.remove(oldest)
      oldest
    }
  }
}

private[base] object TableCache {
  private val assumedLimit = 65530L

  /** The cache of this executor. */
  lazy val shared: TableCache = new TableCache(defaultMaxMappings)

  /** Returns true if a mapping failed because the process has as many mappings as it may have. */
  def isOutOfMappings(error: IOException): Boolean = error.getCause.isInstanceOf[OutOfMemoryError]

  /** Half of the mappings that the operating system allows a process; the rest is for threads, heaps and libraries. */
  private def defaultMaxMappings: Int = math.max(1024L, math.min(Int.MaxValue, mappingLimit / 2)).toInt

  private def mappingLimit: Long =
    Try(Files.readAllLines(Path.of("/proc/sys/vm/max_map_count")).get(0).trim.toLong).getOrElse(assumedLimit)
}

/**
 * An SST of a base that is opened on demand, and closed when it has been unused for long. A reader holds it meanwhile.
 * Any number of threads.
 */
private[base] final class CachedTable(val file: File, cache: TableCache, missing: MissingBytes = null) {
  private val lock = new ReentrantLock

  /**
   * Keeps the verified parts while the table is not open: before the first read, and after it was closed for others.
   */
  private val verified = if (missing == null) Verified.of(file) else null
  private var table: SstTable = _
  private var holders = 0
  private var dropped = false

  /** Returns true if parts of the file may be missing. */
  def isSparse: Boolean = missing != null

  /**
   * Opens the table if necessary. It stays open until there was a [[release]] for each hold.
   *
   * @throws IllegalStateException after [[drop]]
   * @throws IOException as [[SstTable.map]] does
   */
  def hold(): SstTable = {
    val held =
      try tryHold()
      catch {
        case e: IOException if TableCache.isOutOfMappings(e) =>
          cache.closeResting()
          tryHold()
      }
    cache.trim()
    held
  }

  private def tryHold(): SstTable = {
    lock.lock()
    try {
      if (dropped) throw new IllegalStateException(s"$file is closed")
      if (table == null) {
        table = cache.map(file, missing)
        cache.opened(table)
      } else if (holders == 0) cache.wakes(this)
      holders += 1
      table
    } finally lock.unlock()
  }

  def release(): Unit = {
    lock.lock()
    try {
      holders -= 1
      if (holders == 0) {
        if (dropped) close()
        else cache.rests(this)
      }
    } finally lock.unlock()
    cache.trim()
  }

  /** Closes the table for good, when its last holder has released it. */
  def drop(): Unit = {
    lock.lock()
    try {
      dropped = true
      if (holders == 0) {
        cache.wakes(this)
        close()
      }
    } finally lock.unlock()
  }

  private[base] def closeIfResting(): Unit = {
    lock.lock()
    try if (holders == 0) close()
    finally lock.unlock()
  }

  private def close(): Unit = if (table != null) {
    table.close()
    cache.closed(table)
    table = null
  }
}
