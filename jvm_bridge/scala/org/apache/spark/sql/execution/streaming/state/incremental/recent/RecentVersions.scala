package org.apache.spark.sql.execution.streaming.state.incremental.recent

import java.io.File

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Arena, StoreMemory}

/**
 * The versions of one store that memory holds: generations in the index, and above them those that are still to come into
 * it, in a row from the base's version to the newest. Under the store's lock.
 */
private[incremental] final class RecentVersions(memory: StoreMemory, spillDirectory: File) {
  private var inIndex = newIndexed()
  private var waiting = Vector.empty[Generation]

  /** What the batch before had. */
  private var lastMemtableBytes = 0L
  private var lastMemtableKeys = 0L

  private def newIndexed(): IndexedGenerations = new IndexedGenerations(memory, spillDirectory)

  /** The generations in the index. */
  def indexed: IndexedGenerations = inIndex

  /** The generations above them, oldest first. */
  def pending: Vector[Generation] = waiting

  /** How many generations are in the index, and how many there are in all. */
  def indexedCount: Int = inIndex.generations.size
  def count: Int = indexedCount + waiting.size

  private def all: Vector[Generation] = inIndex.generations.toVector ++ waiting

  /** The newest version; None when memory has none. */
  def newest: Option[VersionId] = all.lastOption.map(_.version)

  /** Which generation, counted from 0, led to a version; -1 when none did. */
  def indexOf(version: VersionId): Int = all.indexWhere(_.version == version)

  /** How many generations lead from the base to a version, -1 when memory does not reach it. */
  def position(version: VersionId, base: VersionId): Int =
    if (version == base) inIndex.merged
    else {
      val i = indexOf(version)
      if (i >= inIndex.merged) i + 1 else -1
    }

  /**
   * Brings the generations up to the n-th into the index, and makes room for the next changes. Does neither while a
   * transaction reads the index.
   *
   * @return how many generations on the way to the n-th are still pending
   */
  def indexUpTo(n: Int): Int = {
    if (canStepBackTo(n)) waiting = inIndex.takeOutNewest() +: waiting
    if (n < indexedCount) replace(inIndex.cut(n))
    val above = n - indexedCount
    if (inIndex.readers > 0) above
    else {
      publish(above)
      makeRoom(math.min(lastMemtableBytes + lastMemtableBytes / 2, memory.budgetBytes / 8) + Arena.smallestSegment)
      0
    }
  }

  /** Whether [[indexUpTo]] of n takes the newest generation out of the index, which costs what bringing it in did. */
  def canStepBackTo(n: Int): Boolean = n == indexedCount - 1 && inIndex.readers == 0 && inIndex.canTakeOutNewest

  private def publish(n: Int): Unit = (0 until n).foreach { _ =>
    makeRoom(inIndex.bytesFor(waiting.head))
    inIndex.publish(waiting.head)
    waiting = waiting.tail
  }

  /** Makes it here, where records may be saved; what a larger memtable takes later is taken without. */
  private def makeRoom(bytes: Long): Unit =
    while (inIndex.evictable && memory.usedBytes + bytes > memory.budgetBytes) inIndex.evict(saving = true)

  private def replace(kept: IndexedGenerations): Unit = {
    inIndex.release()
    inIndex = kept
    dropPending(0)
  }

  private def dropPending(kept: Int): Unit = {
    waiting.drop(kept).foreach(_.release())
    waiting = waiting.take(kept)
  }

  /** Forgets all. */
  def clear(): Unit = replace(newIndexed())

  /** Forgets the first n generations, which end above the index; who reads them keeps them until its end. */
  def restartAbove(n: Int): Unit = {
    val above = newIndexed()
    val (held, newer) = waiting.splitAt(n - indexedCount)
    inIndex.release()
    inIndex = above
    held.foreach(_.release())
    waiting = newer
  }

  /** Appends a generation to the first n, which reach the end of the index at least; those behind them are forgotten. */
  def append(n: Int, generation: Generation): Unit = {
    dropPending(n - indexedCount)
    waiting :+= generation
    lastMemtableBytes = generation.memtable.bytes
    lastMemtableKeys = generation.records
  }

  /** How many keys the next memtable may expect, as far as room for them is a small share of the budget. */
  def expectedKeys: Int =
    math.min(lastMemtableKeys, MemTable.keysWithin(memory.budgetBytes / RecentVersions.expectedShare)).toInt

  /** Whether memory is full of versions that no base holds. */
  def needBase: Boolean = {
    val unmerged = inIndex.unmergedBytes + waiting.map(_.memtable.bytes).sum
    val full = spilledBytes > 0 || memory.usedBytes + lastMemtableBytes > memory.budgetBytes / 10 * 9
    full && unmerged > 0 && unmerged >= inIndex.mergedBytes
  }

  /** Of all generations; the index not counted. */
  def bytes: Long = inIndex.mergedBytes + inIndex.unmergedBytes + waiting.map(_.bytes).sum
  def spilledBytes: Long = inIndex.spilledBytes + waiting.map(_.memtable.spilledBytes).sum

  /** Gives all back; who reads it keeps it until its end. Once. */
  def close(): Unit = {
    inIndex.release()
    dropPending(0)
  }
}

private object RecentVersions {

  /** The part of the budget that the table of a new memtable may take at once is one in this many. */
  private val expectedShare = 32
}
