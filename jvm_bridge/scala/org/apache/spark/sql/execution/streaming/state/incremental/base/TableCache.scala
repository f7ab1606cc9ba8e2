package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.{File, IOException}
import java.nio.file.{Files, Path}
import java.util.concurrent.locks.ReentrantLock

import scala.util.Try

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.sst.{MissingBytes, SstTable, Verified}

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
