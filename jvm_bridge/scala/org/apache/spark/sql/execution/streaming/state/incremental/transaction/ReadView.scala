package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import org.apache.spark.sql.execution.streaming.state.incremental.base.{Base, BaseReader}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{KeyHash, Record}
import org.apache.spark.sql.execution.streaming.state.incremental.recent.{Generation, IndexedGenerations, RecentIndex}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.Cursor

/**
 * The counts of look-ups of single committed rows.
 *
 * @param hits look-ups that memory answered
 * @param misses look-ups that the base had to answer
 * @param filters filters of the base's files that the misses asked
 * @param blocks blocks of the base's files that the misses read
 * @param ahead blocks among the base's files that were fetched together, before they were read
 */
final case class LookUps(hits: Long, misses: Long, filters: Long, blocks: Long, ahead: Long) {
  def +(other: LookUps): LookUps = LookUps(
    hits + other.hits, misses + other.misses, filters + other.filters, blocks + other.blocks, ahead + other.ahead)
}

object LookUps {
  val none: LookUps = LookUps(0, 0, 0, 0, 0)
}

/**
 * The rows that a transaction sees below its own changes: a committed version, made of pending generations, which are
 * not in the index yet, of the index, and of a base. It holds a reference to each until [[release]]. For one thread at
 * a time.
 *
 * @param version the version
 * @param keys number of keys at the version
 * @param indexed the generations in the index, and the index
 * @param pending generations that are not in the index, oldest first
 * @param indexedKeys number of keys at the version that the index leads to
 * @param base the base; null: nothing lies below
 * @param empty ranges in which the version is known to have no rows
 */
private[transaction] final class ReadView(
    val version: VersionId,
    val keys: Long,
    val indexed: IndexedGenerations,
    val pending: Array[Generation],
    indexedKeys: Long,
    val base: Base,
    val empty: EmptyRanges) {
  indexed.retain()
  pending.foreach(_.retain())
  if (base != null) base.retain()
  private var reader: BaseReader = _

  /** A sum of the results of reads ahead, so that the compiler does not remove them. */
  private var prefetched = 0
  private var hitCount = 0L
  private var missCount = 0L

  def lookUps: LookUps =
    if (reader == null) LookUps(hitCount, missCount, 0, 0, 0)
    else LookUps(hitCount, missCount, reader.filters, reader.blocks, reader.blocksAhead)

  /** Returns true if the base has rows that memory lacks: if the index has all rows, later generations lack none. */
  def needsBase: Boolean = base != null && indexed.index.present != indexedKeys

  private def baseReader: BaseReader = {
    if (reader == null) reader = base.reader()
    reader
  }

  /** Returns the newest record of a key in memory; 0 if there is none. */
  def record(hash: Long, key: Array[Byte]): Long = {
    var i = pending.length
    while (i > 0) {
      i -= 1
      val memtable = pending(i).memtable
      val slot = memtable.find(hash, key)
      if (slot != 0) {
        hitCount += 1
        return memtable.record(slot)
      }
    }
    val found = indexed.index.find(hash, key)
    if (found != 0) hitCount += 1
    found
  }

  /** Returns true if memory has any record of the key of a row in the base. */
  def overrides(hash: Int, keyAt: Long, length: Int): Boolean =
    pendingHas(pending.length, hash, keyAt, length) || indexed.index.find(hash, keyAt, length) != 0

  /** Returns true if one of the n newest pending generations has a key. */
  def pendingHas(n: Int, hash: Int, keyAt: Long, length: Int): Boolean = {
    var i = pending.length - n
    while (i < pending.length) {
      if (pending(i).memtable.find(hash, keyAt, length) != 0) return true
      i += 1
    }
    false
  }

  /** Returns the value that the base holds for a key that memory has no record of; null if the key is absent. */
  def fromBase(key: Array[Byte]): Array[Byte] =
    if (needsBase) {
      missCount += 1
      baseReader.get(KeyHash.of(key), key)
    } else {
      hitCount += 1
      null
    }

  /** Returns true if rows may have to be fetched from remote storage. */
  def isSparse: Boolean = needsBase && base.isSparse

  /** Returns true if memory has any record of a key. */
  def knows(hash: Long, key: Array[Byte]): Boolean =
    pending.exists(_.memtable.find(hash, key) != 0) || indexed.index.find(hash, key) != 0

  /** Announces keys that the base will be asked for. */
  def expect(keys: Iterable[Array[Byte]]): Unit = baseReader.expect(keys)

  /** Takes over the rows that an earlier view of the same version has read ahead. Nobody uses that one meanwhile. */
  def inherit(from: ReadView): Unit =
    if (isSparse && (from.base eq base) && from.reader != null) baseReader.inherit(from.reader)

  /** Reads the memory of the index that [[contains]] of a record reads first. */
  def prefetch(record: Long): Unit = prefetched += indexed.index.prefetch(record)

  /** Returns true if the key of a record has a value. */
  def contains(record: Long): Boolean = {
    val hash = Record.hash(record)
    val at = Record.keyAddress(record)
    val length = Record.keyLength(record)
    var i = pending.length
    while (i > 0) {
      i -= 1
      val memtable = pending(i).memtable
      val slot = memtable.find(hash, at, length)
      if (slot != 0) return !Record.isRemoved(memtable.record(slot))
    }
    val found = indexed.index.find(hash, at, length)
    if (found != 0) !Record.isRemoved(found)
    else needsBase && {
      val key = Record.key(record)
      baseReader.contains(KeyHash.of(key), key)
    }
  }

  /**
   * Returns a cursor over the rows of the base from a key on, maybe only those before `until`; null if memory has all
   * rows.
   */
  def baseCursor(from: Array[Byte], until: Array[Byte]): Cursor =
    if (needsBase) baseReader.cursor(from, until) else null

  /** Releases the references, once, except that to the base, which the caller releases. */
  def release(): Unit =
    try if (reader != null) reader.close()
    finally {
      indexed.release()
      pending.foreach(_.release())
    }
}

private[transaction] object ReadView {

  /** The number of records that are worth a [[ReadView.prefetch]] before the first is looked up. */
  val prefetchedAtOnce: Int = RecentIndex.prefetchedAtOnce
}
