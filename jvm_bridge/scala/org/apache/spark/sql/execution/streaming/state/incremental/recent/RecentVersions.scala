package org.apache.spark.sql.execution.streaming.state.incremental.recent

import java.io.File
import java.util.concurrent.atomic.AtomicInteger

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Arena, SortedRuns, StoreMemory}

// The versions that are in memory, and the generation of changes that led to each.

/**
 * The versions of one store in memory, in a row from the base's version to the newest: generations in the index, and
 * above them pending ones, which come into the index later. Under the store's lock.
 *
 * If the batch of the newest version ran more than once, the other attempts are kept, too, until a version is built on
 * the newest: only the next batch shows which attempt Spark has committed. They are dropped if memory runs out.
 */
private[incremental] final class RecentVersions(memory: StoreMemory, spillDirectory: File) {
  private var inIndex = newIndexed()
  private var waiting = Vector.empty[Generation]

  /** The other attempts at the newest version, on the same version before, which the newest may change places with. */
  private var others = Vector.empty[Generation]

  /** The memtable bytes and keys of the batch before. */
  private var lastMemtableBytes = 0L
  private var lastMemtableKeys = 0L

  private def newIndexed(): IndexedGenerations = new IndexedGenerations(memory, spillDirectory)

  /** The generations in the index. */
  def indexed: IndexedGenerations = inIndex

  /** The pending generations above the index, oldest first. */
  def pending: Vector[Generation] = waiting

  /** The number of generations in the index, and of all. */
  def indexedCount: Int = inIndex.generations.size
  def count: Int = indexedCount + waiting.size

  private def all: Vector[Generation] = inIndex.generations.toVector ++ waiting

  /** The newest version; None if memory has none. */
  def newest: Option[VersionId] = all.lastOption.map(_.version)

  /** Returns the position of the generation that led to a version, counted from 0; -1 if there is none. */
  def indexOf(version: VersionId): Int = all.indexWhere(_.version == version)

  /**
   * Returns the number of generations that lead from the base to a version; -1 if memory does not reach the version.
   */
  def position(version: VersionId, base: VersionId): Int =
    if (version == base) inIndex.generationsInBase
    else {
      val i = indexOf(version)
      if (i >= inIndex.generationsInBase) i + 1 else -1
    }

  /** True if there are other attempts at the newest version. */
  def isContested: Boolean = others.nonEmpty

  /** Returns true if [[switchTo]] can make another attempt the newest version. */
  def canSwitchTo(version: VersionId): Boolean =
    others.exists(_.version == version) && (waiting.nonEmpty || inIndex.readers == 0 && inIndex.canUnpublishNewest)

  /** Makes another attempt the newest version. The newest one until now joins the other attempts. */
  def switchTo(version: VersionId): Unit = {
    if (waiting.isEmpty) waiting = Vector(inIndex.unpublishNewest())
    val i = others.indexWhere(_.version == version)
    val generation = others(i)
    others = others.updated(i, waiting.last)
    waiting = waiting.init :+ generation
  }

  /** Keeps an attempt, which gives way to a later one. The first attempt is the likeliest to be taken, then the last. */
  private def keepOther(attempt: Generation): Unit = {
    others :+= attempt
    if (others.size > RecentVersions.maxOthers) {
      others(1).release()
      others = others.patch(1, Nil, 1)
    }
  }

  /** Forgets the other attempts; returns the bytes that this frees now. */
  def dropOthers(): Long = {
    val freed = others.filterNot(_.isShared).map(_.bytes).sum
    others.foreach(_.release())
    others = Vector.empty
    freed
  }

  /** The bytes that [[dropOthers]] frees, if no transaction reads them. */
  def otherBytes: Long = others.map(_.bytes).sum

  /**
   * Brings the generations up to the n-th into the index, and makes room for the next changes. Does neither while a
   * transaction reads the index.
   *
   * @return the number of generations on the way to the n-th that are still pending
   */
  def indexUpTo(n: Int): Int = {
    if (canStepBackTo(n)) waiting = inIndex.unpublishNewest() +: waiting
    if (n < indexedCount) replace(inIndex.cut(n))
    val above = n - indexedCount
    if (inIndex.readers > 0) above
    else {
      publish(above)
      makeRoom(math.min(lastMemtableBytes + lastMemtableBytes / 2, memory.budgetBytes / 8) + Arena.smallestSegment)
      0
    }
  }

  /**
   * Returns true if [[indexUpTo]] of n takes the newest generation out of the index, which costs as much as bringing it
   * in did.
   */
  def canStepBackTo(n: Int): Boolean = n == indexedCount - 1 && inIndex.readers == 0 && inIndex.canUnpublishNewest

  private def publish(n: Int): Unit = (0 until n).foreach { _ =>
    makeRoom(inIndex.bytesFor(waiting.head))
    val above = waiting.tail // before, since it takes heap
    inIndex.publish(waiting.head)
    waiting = above
  }

  /**
   * Frees memory for that many bytes now, while records may be saved. A memtable that grows larger frees memory without
   * saving.
   */
  private def makeRoom(bytes: Long): Unit = {
    def lacksRoom = memory.usedBytes + bytes > memory.budgetBytes
    while (inIndex.evictable && lacksRoom) inIndex.evict(saving = true)
    if (lacksRoom) dropOthers()
  }

  private def replace(kept: IndexedGenerations): Unit = {
    inIndex.release()
    inIndex = kept
    dropPending()
  }

  private def dropPending(): Unit = {
    dropOthers()
    waiting.foreach(_.release())
    waiting = Vector.empty
  }

  /** Forgets all generations. */
  def clear(): Unit = replace(newIndexed())

  /**
   * Forgets the first n generations, which end above the index. Transactions that read them keep them until they end.
   */
  def restartAbove(n: Int): Unit = {
    val above = newIndexed()
    val (dropped, newer) = waiting.splitAt(n - indexedCount)
    inIndex.release()
    inIndex = above
    dropped.foreach(_.release())
    waiting = newer
    if (newer.isEmpty) dropOthers()
  }

  /**
   * Appends a generation to the first n, which reach at least to the end of the index, and forgets those after them. If
   * only the newest comes after them, it is another attempt at the same version, and is kept.
   */
  def append(n: Int, generation: Generation): Unit = {
    val before = n - indexedCount
    val replaced = waiting.drop(before)
    if (replaced.size == 1) keepOther(replaced.head)
    else {
      dropOthers()
      replaced.foreach(_.release())
    }
    waiting = waiting.take(before) :+ generation
    lastMemtableBytes = generation.memtable.bytes
    lastMemtableKeys = generation.records
  }

  /**
   * The number of keys that the next memtable makes room for at once; the room is a small share of the budget at most.
   */
  def expectedKeys: Int =
    math.min(lastMemtableKeys, MemTable.keysWithin(memory.budgetBytes / RecentVersions.expectedShare)).toInt

  /** Returns true if memory is full of versions that no base holds. */
  def needsIngest: Boolean = {
    val unmerged = inIndex.unmergedBytes + waiting.map(_.memtable.bytes).sum
    val full = rowSpilledBytes > 0 || memory.usedBytes + lastMemtableBytes > memory.budgetBytes / 10 * 9
    full && unmerged > 0 && unmerged >= inIndex.mergedBytes
  }

  /** The bytes of all generations, without the index. */
  def bytes: Long = inIndex.mergedBytes + inIndex.unmergedBytes + waiting.map(_.bytes).sum + otherBytes
  def spilledBytes: Long = rowSpilledBytes + others.map(_.memtable.spilledBytes).sum

  /** The spilled bytes without those of other attempts, which no base frees. */
  private def rowSpilledBytes: Long = inIndex.spilledBytes + waiting.map(_.memtable.spilledBytes).sum

  /** Releases all generations, once. Transactions that read them keep them until they end. */
  def close(): Unit = {
    inIndex.release()
    dropPending()
  }
}

private object RecentVersions {

  /** The table of a new memtable may take one part in this many of the budget at once. */
  private val expectedShare = 32

  /** The number of other attempts at the newest version that are kept. */
  private val maxOthers = 3
}

/**
 * The frozen changes that led to a version, shared by counted references. The last release frees the memory.
 *
 * @param version the version
 * @param keys number of keys of the store at the version
 * @param memtable the changes; its table stays until the changes are in the index and the transactions that began
 *   before have ended
 * @param changes the changes of the memtable in key order, if they have been sorted; this generation owns them from now
 *   on
 */
private[incremental] final class Generation(
    val version: VersionId,
    val keys: Long,
    val memtable: MemTable,
    changes: Option[SortedRuns] = None) {
  private val references = new AtomicInteger(1)

  /** The position of this generation among all that came into the index of a store, oldest first. */
  private[recent] var sequence = 0L

  /** The number of keys that it has a record of. */
  val records: Long = memtable.size

  private var order: SortedRuns = changes.orNull

  /** True if the order has all records, those of rows that were only read, too. */
  private var isComplete = false

  /**
   * Returns all records in key order; sorts them at the first call. For any thread, while the memtable has its table.
   */
  def sorted: SortedRuns = synchronized {
    if (order == null) order = memtable.sortedRecords()
    else if (!isComplete) addUnchanged()
    isComplete = true
    order
  }

  private def addUnchanged(): Unit =
    try order.addUnsorted(memtable.foreachUnchanged, _ => true)
    catch {
      case e: Throwable => // the order may have some of them
        forgetOrder()
        throw e
    }

  /** Frees the order that [[sorted]] returned; nobody may read it any more. */
  private[recent] def forgetOrder(): Unit = synchronized {
    if (order != null) order.free()
    order = null
  }

  /** The bytes of the memtable and of the order. */
  def bytes: Long = memtable.bytes + synchronized(if (order == null) 0 else order.bytes)

  /** Returns true if another index has the generation, too, or a transaction reads it. */
  private[recent] def isShared: Boolean = references.get > 1

  def retain(): Unit = references.incrementAndGet()

  def release(): Unit = if (references.decrementAndGet() == 0) {
    forgetOrder()
    memtable.free()
  }
}
