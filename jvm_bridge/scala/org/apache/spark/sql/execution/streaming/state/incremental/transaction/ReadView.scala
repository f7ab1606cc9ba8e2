package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import java.util.Arrays

import org.apache.spark.sql.execution.streaming.state.incremental.base.{Base, BaseReader}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{KeyHash, OrderedRecords, Record}
import org.apache.spark.sql.execution.streaming.state.incremental.recent.{Generation, IndexedGenerations, RecentIndex}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.Cursor

// What a transaction reads below its own changes, and the ranges of keys that scans found to be empty there.

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
    val record = indexed.index.find(hash, key)
    if (record != 0) hitCount += 1
    record
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
    val newest = indexed.index.find(hash, at, length)
    if (newest != 0) !Record.isRemoved(newest)
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

/**
 * A range of keys, from <= key < until, in which some version has no row.
 *
 * @param removed approximate number of removed keys that scans passed to learn that
 */
private[transaction] final case class EmptyRange(from: Array[Byte], until: Array[Byte], removed: Long)

/**
 * The ranges of keys in which one version has no rows, though removed keys still lie there, in memory or in the base. A
 * scan in key order that passed such keys adds them, and later scans begin behind them. The ranges are largest: those with
 * the most removed keys. For any thread.
 *
 * @param version the version
 * @param fewest number of removed keys in a row that are worth a range
 */
private[transaction] final class EmptyRanges private (val version: VersionId, fewest: Int, first: Array[EmptyRange]) {
  import EmptyRanges._

  /** The ranges, disjoint and in the order of keys. An array is never changed; another takes its place. */
  @volatile private var ranges = first

  def this(version: VersionId, fewest: Int) = this(version, fewest, EmptyRanges.none)

  /** Returns the ranges that have keys with from <= key < until (null: to the end). */
  def overlapping(from: Array[Byte], until: Array[Byte]): Array[EmptyRange] =
    ranges.filter(range => !isOrdered(range.until, from) && (until == null || !isOrdered(until, range.from)))

  /** Returns true if this number of removed keys in a row is worth a range. */
  def isWorth(removed: Long): Boolean = removed >= fewest

  /**
   * Adds a range in which no key has a row.
   *
   * @param from the first key of the range
   * @param until the first key after the range
   * @param removed the number of removed keys that were passed there
   */
  def add(from: Array[Byte], until: Array[Byte], removed: Long): Unit =
    if (!isOrdered(until, from)) synchronized {
      val (touching, apart) = ranges.partition(range => isOrdered(range.from, until) && isOrdered(from, range.until))
      val starts = (touching.map(_.from) :+ from).sortWith(isOrdered)
      val ends = (touching.map(_.until) :+ until).sortWith(isOrdered)
      ranges = largest(apart :+ EmptyRange(starts.head, ends.last, removed + touching.map(_.removed).sum))
    }

  /**
   * Returns the ranges of a version that was made of this one.
   *
   * @param version the new version
   * @param putsIn returns the rows within a range that the new version has and this one may lack
   */
  def next(version: VersionId, putsIn: EmptyRange => OrderedRecords): EmptyRanges = {
    val remaining = ranges.flatMap(range => parts(range, putsIn(range)))
    new EmptyRanges(version, fewest, largest(remaining.filter(range => !isOrdered(range.until, range.from))))
  }
}

private[transaction] object EmptyRanges {
  val none: Array[EmptyRange] = Array.empty[EmptyRange]

  /** The largest number of ranges of a version. */
  private val maxRanges = 16

  private def isOrdered(a: Array[Byte], b: Array[Byte]): Boolean = Arrays.compareUnsigned(a, b) <= 0

  /** Returns the parts of a range between rows; of many rows, those before the first rows and behind the last. */
  private def parts(range: EmptyRange, rows: OrderedRecords): Seq[EmptyRange] =
    if (rows.record == 0) Seq(range)
    else {
      val ranges = Seq.newBuilder[EmptyRange]
      var from = range.from
      var last = 0L
      var count = 0
      while (rows.record != 0) {
        last = rows.record
        if (count < maxRanges) {
          ranges += EmptyRange(from, Record.key(last), range.removed / 2)
          from = behindKey(last)
        }
        count += 1
        rows.next()
      }
      ranges += EmptyRange(behindKey(last), range.until, range.removed / 2)
      ranges.result()
    }

  /** Returns the first key that may come after the key of a record. */
  private def behindKey(record: Long): Array[Byte] = Arrays.copyOf(Record.key(record), Record.keyLength(record) + 1)

  private def largest(ranges: Array[EmptyRange]): Array[EmptyRange] =
    ranges.sortBy(-_.removed).take(maxRanges).sortWith((a, b) => isOrdered(a.from, b.from))
}
