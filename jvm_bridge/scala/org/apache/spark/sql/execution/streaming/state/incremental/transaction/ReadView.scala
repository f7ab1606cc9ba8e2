package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import org.apache.spark.sql.execution.streaming.state.incremental.base.{Base, BaseReader}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{KeyHash, Record}
import org.apache.spark.sql.execution.streaming.state.incremental.recent.{Generation, IndexedGenerations, RecentIndex}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.Cursor

/**
 * How committed rows of single keys were found.
 *
 * @param hits    answered by memory
 * @param misses  those that the base had to answer
 * @param filters of its files, that these asked
 * @param blocks  of its files, that these read
 */
final case class LookUps(hits: Long, misses: Long, filters: Long, blocks: Long)

/**
 * What one transaction sees below its own changes: a committed version, made of generations that are not in
 * the index yet, the index, and a base. It holds a reference to each until [[release]]. One thread at a time.
 *
 * @param keys    number of keys at that version
 * @param pending generations that are not in the index, oldest first
 * @param indexedKeys number of keys at the version that the index leads to
 * @param base    null: nothing lies below
 * @param empty   where that version has no rows, as far as is known
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

  /** Takes what [[prefetch]] reads, so that the compiler does not remove it. */
  private var prefetched = 0
  private var hitCount = 0L
  private var missCount = 0L

  def lookUps: LookUps =
    if (reader == null) LookUps(hitCount, missCount, 0, 0) else LookUps(hitCount, missCount, reader.filters, reader.blocks)

  /** Whether the base has rows that memory has not: where the index has them all, later generations lack none. */
  def needsBase: Boolean = base != null && indexed.index.present != indexedKeys

  private def baseReader: BaseReader = {
    if (reader == null) reader = base.reader()
    reader
  }

  /** The newest record of a key in memory, 0 when there is none. */
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

  /** Whether memory has any record of the key of a row in the base. */
  def overrides(hash: Int, keyAt: Long, length: Int): Boolean =
    pendingHas(pending.length, hash, keyAt, length) || indexed.index.find(hash, keyAt, length) != 0

  /** Whether one of the generations from that position on that are not in the index has the key. */
  def pendingHas(n: Int, hash: Int, keyAt: Long, length: Int): Boolean = {
    var i = pending.length - n
    while (i < pending.length) {
      if (pending(i).memtable.find(hash, keyAt, length) != 0) return true
      i += 1
    }
    false
  }

  /** What the base holds for a key that memory has no record of. */
  def fromBase(key: Array[Byte]): Array[Byte] =
    if (needsBase) {
      missCount += 1
      baseReader.get(KeyHash.of(key), key)
    } else {
      hitCount += 1
      null
    }

  /** Whether rows may have to come from far. */
  def isSparse: Boolean = needsBase && base.isSparse

  /** Whether memory has any record of a key. */
  def knows(hash: Long, key: Array[Byte]): Boolean =
    pending.exists(_.memtable.find(hash, key) != 0) || indexed.index.find(hash, key) != 0

  /** Keys that the base is going to be asked for. */
  def expect(keys: Iterable[Array[Byte]]): Unit = baseReader.expect(keys)

  /** Reads what [[contains]] of a record will read first of the index. */
  def prefetch(record: Long): Unit = prefetched += indexed.index.prefetch(record)

  /** Whether the key of a record is there. */
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

  /** Rows of the base from a key on, maybe only those before until; null when memory has them all. */
  def baseCursor(from: Array[Byte], until: Array[Byte]): Cursor =
    if (needsBase) baseReader.cursor(from, until) else null

  /** Gives up the references, but that to the base, which the caller releases. Once. */
  def release(): Unit =
    try if (reader != null) reader.close()
    finally {
      indexed.release()
      pending.foreach(_.release())
    }
}

private[transaction] object ReadView {

  /** For how many records [[ReadView.prefetch]] is worth calling before the first is looked up. */
  val prefetchedAtOnce: Int = RecentIndex.prefetchedAtOnce
}
