package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import java.io.File
import java.util.concurrent.locks.ReentrantLock

import org.apache.spark.sql.execution.streaming.state.incremental.base.{Base, BaseDirectory}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{ColumnFamilies, VersionId}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Arena, MemoryUse, StoreMemory}
import org.apache.spark.sql.execution.streaming.state.incremental.recent.{Generation, InconsistentStateException, IndexedGenerations, MemTable}

/**
 * Settings of one store's data plane.
 *
 * @param spillDirectory local directory, made when first needed, for memory-mapped files that take what the memory
 *     budget has no room for; they have no name once they are open
 * @param fewestPassed   how many removed keys one after the other scans in key order remember, to pass over them later
 */
final case class StateConf(spillDirectory: File, fewestPassed: Int = 256)

/**
 * The rows of one store: generations in memory over a base on local disk, and the transactions on them.
 * Thread-safe; its lock is held at the begin and end of transactions only, never while rows move. Memory is
 * drawn from the executor's budget; when that is full, rows that the base holds too are dropped, the oldest
 * first; what then has no room goes to memory-mapped files.
 */
final class StoreVersions(memory: StoreMemory, conf: StateConf) {
  private val lock = new ReentrantLock
  private var closed = false
  private var base: Base = _
  private var indexed = new IndexedGenerations(memory, conf.spillDirectory)
  private var pending = Vector.empty[Generation]
  private var offered: Base = _
  private var writers = Set.empty[Transaction]
  private var readers = Set.empty[Transaction]
  private var lastMemtableBytes = 0L
  private var lastMemtableKeys = 0L
  private var settling = false

  /** What scans have learned of one version, mostly the newest. */
  private var emptyRanges = newEmptyRanges(VersionId.empty)
  @volatile private var reclaimable = 0L
  private val cache = new StoreMemory.Reclaimable {
    def reclaimableBytes: Long = reclaimable
    def reclaim(bytes: Long): Long = StoreVersions.this.reclaim(bytes)
  }
  memory.register(cache)

  private def locked[T](action: => T): T = {
    lock.lock()
    try action
    finally lock.unlock()
  }

  private def check(): Unit = if (closed) throw new IllegalStateException("The state store is closed")

  private def baseVersion: VersionId = if (base == null) VersionId.empty else base.version

  private def versions: Vector[Generation] = indexed.generations.toVector ++ pending

  /** The newest version that memory holds. */
  def newest: VersionId = locked(versions.lastOption.map(_.version).getOrElse(baseVersion))

  /**
   * Begins on that version. None when memory cannot reach it: then restore it and [[reset]]. Beginning to
   * write on an older version that memory still reaches is a rollback: newer ones go, at once or with the
   * commit.
   *
   * @throws IllegalStateException after [[close]]
   */
  def tryBegin(version: VersionId, readOnly: Boolean): Option[Transaction] = locked {
    check()
    orElseForget(adoptOffered())
    val n = position(if (version.number == 0) VersionId.empty else version)
    if (n < 0 || readOnly && n < indexed.generations.size) None
    else if (base != null && base.damaged) None // to be restored, from what is not
    else {
      Some(orElseForget(begin(bringIn(n), version, readOnly)))
    }
  }

  /** Where memory contradicts itself, the next begin restores what is in checkpoint storage. */
  private def orElseForget[T](action: => T): T =
    try action
    catch {
      case e: InconsistentStateException =>
        restart(null)
        throw e
    }

  /** How many generations lead to a version; -1 when it is not to be had. */
  private def position(version: VersionId): Int =
    if (version == baseVersion) indexed.merged
    else {
      val i = versions.indexWhere(_.version == version)
      if (i >= indexed.merged) i + 1 else -1
    }

  /**
   * Brings into the index what leads to the n-th generation, and makes room for the next changes. How many
   * pending generations remain on the way there.
   */
  private def bringIn(n: Int): Int = {
    settling = true
    try {
      if (n < indexed.generations.size) replace(indexed.cut(n))
      val above = n - indexed.generations.size
      if (indexed.readers > 0) above
      else {
        publish(above)
        makeRoom(math.min(lastMemtableBytes + lastMemtableBytes / 2, memory.budgetBytes / 8) + Arena.smallestSegment)
        0
      }
    } finally {
      settling = false
      noteReclaimable()
    }
  }

  private def publish(n: Int): Unit = (0 until n).foreach { _ =>
    makeRoom(indexed.roomFor(pending.head))
    indexed.publish(pending.head)
    pending = pending.tail
  }

  /** Makes it here, where records may be saved; what a larger memtable takes later is taken without. */
  private def makeRoom(bytes: Long): Unit =
    while (indexed.evictable && memory.usedBytes + bytes > memory.budgetBytes) indexed.evict(saving = true)

  /**
   * Brings into the index what was committed last, as the next begin would. Nothing while a transaction is
   * open. Any thread.
   */
  def indexCommitted(): Unit = locked {
    if (!closed && pending.nonEmpty && indexed.readers == 0) orElseForget(bringIn(versions.size))
  }

  private def replace(kept: IndexedGenerations): Unit = {
    indexed.release()
    indexed = kept
    pending.foreach(_.release())
    pending = Vector.empty
  }

  private def begin(pendingCount: Int, version: VersionId, readOnly: Boolean): Transaction = {
    val above = pending.take(pendingCount).toArray
    val keys = above.lastOption.orElse(indexed.generations.lastOption).map(_.keys).getOrElse(baseKeys)
    if (above.isEmpty) indexed.check(keys, hasBase = base != null)
    val view = new ReadView(version, keys, indexed, above, base, emptyRangesAt(version))
    val transaction =
      new Transaction(this, version, readOnly, view,
        new MemTable(memory, conf.spillDirectory, if (readOnly) 0 else expectedKeys))
    if (readOnly) readers += transaction else writers += transaction
    transaction
  }

  private[transaction] def newEmptyRanges(version: VersionId): EmptyRanges = new EmptyRanges(version, conf.fewestPassed)

  private def emptyRangesAt(version: VersionId): EmptyRanges = {
    if (emptyRanges.version != version && version == newest) emptyRanges = newEmptyRanges(version)
    if (emptyRanges.version == version) emptyRanges else newEmptyRanges(version)
  }

  /** What the batch before had, as far as room for it is a small share of the budget. */
  private def expectedKeys: Int =
    math.min(lastMemtableKeys, MemTable.keysWithin(memory.budgetBytes / StoreVersions.expectedShare)).toInt

  private def baseKeys: Long = if (base == null) 0 else base.keys

  /**
   * Forgets all and starts from this base; its column families. When it cannot be opened, all stays as it was,
   * and the directory is given back.
   */
  def reset(directory: BaseDirectory): ColumnFamilies = {
    val opened = open(directory)
    val families = opened.families
    locked {
      if (closed) {
        opened.release()
        check()
      }
      restart(opened)
    }
    families
  }

  /** Whether reading the base has failed. */
  def isDamaged: Boolean = locked(base != null && base.damaged)

  /** What comes of the base that transactions begin on; it stays open meanwhile. None: there is none that is good. */
  private[incremental] def withBase[T](use: Base => T): Option[T] = {
    val held = locked {
      val good = Option(base).filter(one => !closed && !one.damaged)
      good.foreach(_.retain())
      good
    }
    held.map { one =>
      try use(one)
      finally one.release()
    }
  }

  /** Forgets all and starts from the empty version 0. */
  def resetEmpty(): Unit = locked {
    check()
    restart(null)
  }

  private def restart(newBase: Base): Unit = {
    replace(new IndexedGenerations(memory, conf.spillDirectory))
    if (base != null) base.release()
    base = newBase
    emptyRanges = newEmptyRanges(VersionId.empty)
    dropOffered()
    noteReclaimable()
  }

  private def open(directory: BaseDirectory): Base =
    try Base.open(directory, memory)
    catch {
      case e: Throwable =>
        directory.onClose()
        throw e
    }

  /**
   * A newer base, holding a version on the way to the newest. It is taken at a later begin; or closed, when that
   * version is not on the way. Opened here, in the caller's thread.
   */
  def offerBase(directory: BaseDirectory): Unit = {
    val opened = open(directory)
    locked {
      if (closed) opened.release()
      else {
        dropOffered()
        offered = opened
      }
    }
  }

  private def dropOffered(): Unit = if (offered != null) {
    offered.release()
    offered = null
  }

  private def adoptOffered(): Unit =
    if (offered != null && !versions.lastOption.exists(_.version.number < offered.version.number)) {
      if (position(offered.version) > indexed.generations.size) bringIn(position(offered.version))
      if (position(offered.version) > indexed.generations.size && isPinned) beginAbove(position(offered.version))
      else adoptInPlace()
    }

  private def adoptInPlace(): Unit = {
    val i = versions.indexWhere(_.version == offered.version)
    if (offered.version == baseVersion) swapBase() // the same rows in fewer files
    else if (i < indexed.merged) dropOffered()
    else if (i < indexed.generations.size) {
      swapBase()
      indexed.merged = i + 1
    }
  }

  /**
   * Whether many versions wait for a transaction that reads the index and has not ended since they were committed: they
   * take memory that no base can free, and each look-up goes through all of them.
   */
  private def isPinned: Boolean =
    indexed.readers > 0 && pending.size > StoreVersions.mostPending && !writers.exists(_.version == newest)

  /** Begins anew above the offered base, which holds the first n generations; who reads them keeps them until its end. */
  private def beginAbove(n: Int): Unit = {
    val above = new IndexedGenerations(memory, conf.spillDirectory)
    val (held, newer) = pending.splitAt(n - indexed.generations.size)
    indexed.release()
    indexed = above
    held.foreach(_.release())
    pending = newer
    swapBase()
    noteReclaimable()
  }

  private def swapBase(): Unit = {
    if (base != null) base.release()
    base = offered
    offered = null
  }

  /** Whether memory is full of versions that no base holds, which a merge of kind ingest would free. */
  def wantsIngest: Boolean = locked {
    val unmerged = indexed.unmergedBytes + pending.map(_.memtable.bytes).sum
    val full = spilledBytes > 0 || memory.usedBytes + lastMemtableBytes > memory.budgetBytes / 10 * 9
    full && unmerged > 0 && unmerged >= indexed.mergedBytes
  }

  private def spilledBytes: Long = indexed.spilledBytes + pending.map(_.memtable.spilledBytes).sum

  /** After [[close]]: what open transactions still hold. */
  def memoryUse: MemoryUse = locked {
    val memtables = (writers ++ readers).toSeq.map(_.memtable)
    MemoryUse(
      memtableBytes = memtables.map(_.bytes).sum,
      recentBytes = indexed.mergedBytes + indexed.unmergedBytes + pending.map(_.bytes).sum,
      indexBytes = indexed.indexBytes,
      baseBytes = if (closed || base == null) 0 else base.bytes,
      spilledBytes = spilledBytes + memtables.map(_.spilledBytes).sum)
  }

  /**
   * No transaction begins any more; those that are open may end as usual. Any number of times, any thread.
   */
  def close(): Unit = locked {
    if (!closed) {
      closed = true
      memory.unregister(cache)
      indexed.release()
      pending.foreach(_.release())
      pending = Vector.empty
      if (base != null) base.release()
      dropOffered()
    }
  }

  /**
   * Appends a transaction's changes to the version that it began on, if that is still on the way to the newest.
   */
  private[transaction] def append(transaction: Transaction, generation: Generation, empty: EmptyRanges): Unit = locked {
    val n = if (closed || (transaction.view.indexed ne indexed)) -1 else position(transaction.version)
    if (n < indexed.generations.size) generation.release()
    else {
      pending.drop(n - indexed.generations.size).foreach(_.release())
      pending = pending.take(n - indexed.generations.size) :+ generation
      if (offered != null && offered.version.number > transaction.version.number) dropOffered()
      lastMemtableBytes = generation.memtable.bytes
      lastMemtableKeys = generation.records
      emptyRanges = empty
    }
  }

  private[transaction] def ended(transaction: Transaction): Unit = locked {
    transaction.view.release()
    writers -= transaction
    readers -= transaction
    noteReclaimable()
  }

  private def noteReclaimable(): Unit = reclaimable = if (closed) 0 else indexed.mergedBytes

  /** Drops merged generations, unless a transaction of another thread reads them or the store is busy. */
  private def reclaim(bytes: Long): Long =
    if (!lock.tryLock()) 0
    else
      try {
        var freed = 0L
        while (mayEvict && freed < bytes) freed += indexed.evict(saving = false)
        noteReclaimable()
        freed
      } finally lock.unlock()

  /**
   * Whether memory of merged generations may be freed now, by whom:
   *   - any thread, if no transaction reads them: a store that asks for memory frees that of others, too;
   *   - the thread of the only transaction that reads them, if that transaction writes, holds the same index and
   *     base, and no iterator of it has a pinned record: then nobody else has an address into that memory;
   *   - nobody, while the store is closed or settles.
   */
  private def mayEvict: Boolean =
    !closed && !settling && indexed.evictable &&
      (indexed.readers == 0 || indexed.readers == 1 && writers.exists { t =>
        (t.writingThread eq Thread.currentThread) && (t.view.indexed eq indexed) && (t.view.base eq base) && t.memtable.pins == 0
      })
}

private object StoreVersions {

  /** The part of the budget that the table of a new memtable may take at once is one in this many. */
  private val expectedShare = 32

  /** This many versions may wait for a transaction to end. */
  private val mostPending = 8
}
