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

// The files of a base, as they are opened, held by a reader, and closed again for others.

/** Opens the files of a [[Base]], as its runs. If that fails no file stays open. */
private[base] final class BaseOpening(directory: BaseDirectory, cache: TableCache, memory: StoreMemory) {
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
    Base.checkRecord(new BaseReader(runs, identity), path, version, keys)

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
    val table = new CachedTable(file, cache, memory, missingIn(file))
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

  /** Number of entries. This opens the file: a file that cannot be read is known then. */
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
 * A reader of a [[Base]], for one transaction. It holds each file that it has looked into. One thread at a time. Methods
 * throw an IOException if the files cannot be read, and IllegalStateException after [[close]].
 *
 * @param sparse the restored files if parts of them may be missing
 * @param memory gives memory for rows that are read ahead; null: none are
 */
private[incremental] final class BaseReader private[base] (
    private val runs: Array[Array[LevelFile]],
    failed: Throwable => Throwable,
    sparse: Option[RestoredFiles] = None,
    memory: StoreMemory = null) {
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

  /** Numbers of filters and of blocks that look-ups of single keys have read so far. */
  def filters: Long = filterCount
  def blocks: Long = blockCount

  /** The number of blocks that were fetched because of [[expect]]. */
  def blocksAhead: Long = aheadCount

  /**
   * Returns the value of a key, or null if it is absent.
   *
   * @param hash the key's [[KeyHash]]
   */
  def get(hash: Long, key: Array[Byte]): Array[Byte] =
    try if (ahead == null) valueOf(hash, key) else ahead.get(key).getOrElse(valueOf(hash, key))
    catch { case e: Throwable => throw failed(e) }

  private def valueOf(hash: Long, key: Array[Byte]): Array[Byte] =
    if (isThere(hash, key)) Bytes.array(finder.valueAddress, finder.valueLength) else null

  private def isThere(hash: Long, key: Array[Byte]): Boolean = find(hash, key) && finder.valueLength != Record.removed

  /** Returns true if the key is there. */
  def contains(hash: Long, key: Array[Byte]): Boolean =
    try if (ahead == null) isThere(hash, key) else ahead.get(key).fold(isThere(hash, key))(_ != null)
    catch { case e: Throwable => throw failed(e) }

  /** Announces keys that will be looked up, so that the missing blocks that they need are fetched together. */
  def expect(keys: Iterable[Array[Byte]]): Unit =
    try if (ahead != null) aheadCount += ahead.read(keys)
    catch { case e: Throwable => throw failed(e) }

  /** Takes over the rows that another reader of the same base has read ahead. Nobody uses that one meanwhile. */
  def inherit(from: BaseReader): Unit =
    if (ahead != null && from.ahead != null && (from.runs eq runs)) ahead.inherit(from.ahead)

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

  /**
   * Returns the rows from a key on, in key order, without the reserved record. The cursor may end at `until` if that is
   * not null.
   */
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
  private var warnedUnmapped = false

  /** Number of mappings of open tables. */
  def mappings: Int = synchronized(mapped)

  /** Notes that a table is read without a mapping. */
  private[base] def noteUnmapped(error: IOException): Unit = {
    if (!synchronized(warnedUnmapped)) logWarning("No file can be mapped any more: files are read, more slowly", error)
    synchronized { warnedUnmapped = true }
  }

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
private[base] final class CachedTable(
    val file: File,
    cache: TableCache,
    memory: StoreMemory,
    missing: MissingBytes = null) {
  private val lock = new ReentrantLock

  /**
   * Keeps the verified parts while the table is not open: before the first read, and after it was closed for others.
   */
  private val verified = if (missing == null) Verified.of(file) else null
  @volatile private var table: SstTable = _
  private var holders = 0
  private var dropped = false

  /** Returns true if parts of the file may be missing. */
  def isSparse: Boolean = missing != null

  /** Bytes of memory that the table takes from the budget while it is open. */
  def bytes: Long = {
    val opened = table
    if (opened == null) 0 else opened.bytes
  }

  /**
   * Opens the table if necessary. It stays open until there was a [[release]] for each hold. If nothing can be mapped any
   * more, it is read without a mapping.
   *
   * @throws IllegalStateException after [[drop]]
   * @throws IOException as [[SstTable.map]] does
   */
  def hold(): SstTable = {
    val held =
      try tryHold(cache.map)
      catch {
        case e: IOException if TableCache.isOutOfMappings(e) =>
          cache.closeResting()
          try tryHold(cache.map)
          catch {
            case e: IOException if TableCache.isOutOfMappings(e) =>
              cache.noteUnmapped(e)
              tryHold(SstTable.read(_, _))
          }
      }
    cache.trim()
    held
  }

  private def tryHold(openTable: (File, MissingBytes) => SstTable): SstTable = {
    lock.lock()
    try {
      if (dropped) throw new IllegalStateException(s"$file is closed")
      if (table == null) {
        table = openTable(file, missing)
        cache.opened(table)
        memory.take(table.bytes)
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
    memory.release(table.bytes)
    table = null
  }
}
