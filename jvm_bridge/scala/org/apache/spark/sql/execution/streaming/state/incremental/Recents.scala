package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.File
import java.util.concurrent.atomic.AtomicInteger

import scala.collection.mutable

/**
 * Generations whose records are in one index, oldest first. Shared by counted references: the store's own and
 * one of every open transaction; the memory goes with the last. It changes only under the store's lock, and
 * only while no transaction but the one that asks reads it.
 */
private[incremental] final class Recents(memory: StoreMemory, spillDirectory: File) {
  private val references = new AtomicInteger(1)

  /** The records in key order; null until somebody asked for order. */
  private var runs: SortedRuns = _

  /** The records by prefix; null until somebody scanned a prefix. */
  private var prefixes: PrefixIndex = _

  /** Keeps the reads of [[RecentIndex.touch]] from being left out. */
  private var touched = 0
  val index = new RecentIndex(memory, spillDirectory)
  val generations = mutable.ArrayDeque.empty[Generation]

  /** How many of the oldest generations the base holds too. */
  var merged = 0

  def retain(): Unit = references.incrementAndGet()

  def release(): Unit = if (references.decrementAndGet() == 0) {
    index.free()
    if (runs != null) runs.free()
    if (prefixes != null) prefixes.free()
    generations.foreach(_.release())
    generations.clear()
  }

  /** Whether so many others than the store itself read it. */
  def readers: Int = references.get - 1

  /** Adds the next generation, whose reference becomes this one's. */
  def publish(generation: Generation): Unit = {
    val overlay = generation.overlay
    index.reserve(generation.records)
    putAll(overlay.records())
    if (runs != null) runs.add(generation.sorted, index.isNewest)
    generation.forgetOrder()
    overlay.freeTable()
    generations.append(generation)
  }

  /**
   * The newest records with from <= key < until (null: no end), removed ones too, run by run. The first call
   * sorts all.
   */
  def foreachIn(from: Array[Byte], until: Array[Byte])(use: Long => Unit): Unit =
    ordered().foreachIn(from, until)(record => if (index.isNewest(record)) use(record))

  /**
   * The newest records whose keys begin with a prefix that [[PrefixIndex.serves]], removed ones too, in no
   * order.
   */
  def foreachWith(prefix: Array[Byte])(use: Long => Unit): Unit = byPrefix().foreach(prefix)(use)

  private def byPrefix(): PrefixIndex = synchronized {
    if (prefixes == null) {
      val all = new PrefixIndex(memory, spillDirectory)
      foreachNewest(all.add)
      prefixes = all
    }
    prefixes
  }

  private def foreachNewest(use: Long => Unit): Unit = {
    var slot = 0L
    while (slot < index.size) {
      val record = index.at(slot)
      if (record != 0) use(record)
      slot += 1
    }
  }

  private def ordered(): SortedRuns = synchronized {
    if (runs == null) {
      val all = new RecordList
      foreachNewest(all.add)
      val sorted = new SortedRuns(memory, spillDirectory)
      sorted.add(all.sorted(), index.isNewest)
      runs = sorted
    }
    runs
  }

  /** Bytes of the index and of the order. */
  def indexBytes: Long =
    index.bytes + (if (runs == null) 0 else runs.bytes) + (if (prefixes == null) 0 else prefixes.bytes)

  /** How many records its generations have, superseded ones not counted. */
  def records: Long = generations.iterator.map(_.records).sum

  private def putAll(records: Array[Long]): Unit = {
    var from = 0
    while (from < records.length) {
      val until = math.min(from + Recents.touchedAtOnce, records.length)
      var i = from
      while (i < until) {
        touched += index.touch(records(i))
        i += 1
      }
      i = from
      while (i < until) {
        put(records(i))
        i += 1
      }
      from = until
    }
  }

  private def put(record: Long): Unit = {
    val old = index.put(record)
    if (prefixes != null) { if (old == 0) prefixes.add(record) else prefixes.replace(old, record) }
  }

  /** Adds a generation that was published elsewhere before: its records are found by walking the arena. */
  def adopt(generation: Generation): Unit = {
    generation.retain()
    index.reserve(generation.records)
    generation.overlay.arena.foreach(record => index.put(record))
    generations.append(generation)
  }

  /** Drops the oldest merged generation; the bytes that this frees. */
  def evict(): Long = {
    val oldest = generations.removeHead()
    merged -= 1
    val bytes = oldest.overlay.bytes
    oldest.overlay.arena.foreach(index.remove)
    if (prefixes != null) oldest.overlay.arena.foreach(prefixes.remove)
    if (runs != null) runs.drop(oldest.overlay.arena)
    oldest.release()
    bytes
  }

  def mergedBytes: Long = bytes(0, merged)
  def unmergedBytes: Long = bytes(merged, generations.size)
  def spilledBytes: Long = generations.iterator.map(_.overlay.spilledBytes).sum + index.spilledBytes +
    (if (runs == null) 0 else runs.spilledBytes) + (if (prefixes == null) 0 else prefixes.spilledBytes)

  private def bytes(from: Int, until: Int): Long = {
    var sum = 0L
    var i = from
    while (i < until) {
      sum += generations(i).overlay.bytes
      i += 1
    }
    sum
  }
}

private object Recents {
  private val touchedAtOnce = 64
}
