package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import java.io.File
import java.util.concurrent.locks.ReentrantLock

import org.apache.spark.sql.execution.streaming.state.incremental.base.{Base, BaseDirectory}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{ColumnFamilies, VersionId}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{MemoryUse, StoreMemory}
import org.apache.spark.sql.execution.streaming.state.incremental.recent.{
  Generation, InconsistentStateException, MemTable, RecentVersions
}

/**
 * The rows of one store: generations in memory over a base on local disk, and the transactions on them.
 *
 * For any thread. The lock is held at the begin and end of transactions only, never while rows move, nor while a base
 * is closed or given back. Memory comes from the executor's budget. If the budget is full, the store drops rows that
 * the base has, too, the oldest first; rows for which there is no room then go to memory-mapped files.
 *
 * The newest version can be taken out of the index again until a transaction that began on it has committed: only then
 * is it certain that Spark does not run its batch again, on the version before. Until then other attempts at the newest
 * version are readable, too: `foreachBatch` with two actions makes two, and Spark commits the first.
 *
 * @param memory the memory of this store, a part of the executor's budget
 * @param conf the settings
 */
final class StoreVersions(memory: StoreMemory, conf: StateConf) {
  private val lock = new ReentrantLock
  private var closed = false
  private var base: Base = _
  private val recent = new RecentVersions(memory, conf.spillDirectory)
  private var offered: Base = _
  private var writers = Set.empty[Transaction]
  private var readers = Set.empty[Transaction]
  private var settling = false

  /** The bases on which no transaction begins any more, to be released without the lock. */
  private var retired = List.empty[Base]

  /** The empty ranges of one version, usually the newest, that scans have found. */
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
    finally unlock()
  }

  private def unlock(): Unit = {
    val done = if (lock.getHoldCount == 1) retired else Nil
    if (done.nonEmpty) retired = Nil
    lock.unlock()
    done.foreach(_.release())
  }

  /** Releases a base as soon as the lock is free, because closing may take long and calls the base's owner. */
  private def retire(old: Base): Unit = if (old != null) retired ::= old

  private def check(): Unit = if (closed) throw new IllegalStateException("The state store is closed")

  private def baseVersion: VersionId = if (base == null) VersionId.empty else base.version

  /** Returns the newest version that memory holds. */
  def newest: VersionId = locked(recent.newest.getOrElse(baseVersion))

  /**
   * Begins a transaction on a version. A transaction for writing on an older version that memory still reaches is a
   * rollback: newer versions are dropped, at once or with the commit.
   *
   * @return the transaction; None if memory cannot reach the version: then restore it and [[reset]]
   * @throws IllegalStateException after [[close]]
   */
  def tryBegin(version: VersionId, readOnly: Boolean): Option[Transaction] = locked {
    check()
    forgetIfInconsistent {
      if (recent.canSwitchTo(version)) settled(recent.switchTo(version))
      adoptOffered()
    }
    val n = position(if (version.number == 0) VersionId.empty else version)
    if (n < 0 || readOnly && n < recent.indexedCount && !recent.canStepBackTo(n)) None
    else if (base != null && base.isOver) None // to be restored from files that are there, and not damaged
    else {
      Some(forgetIfInconsistent(begin(indexUpTo(n), version, readOnly)))
    }
  }

  /**
   * Runs an action, and forgets all versions if memory contradicts itself: the next begin restores from checkpoint
   * storage.
   */
  private def forgetIfInconsistent[T](action: => T): T =
    try action
    catch {
      case e: InconsistentStateException =>
        restart(null)
        throw e
    }

  /** Returns the number of generations that lead to a version; -1 if memory cannot reach it. */
  private def position(version: VersionId): Int = recent.position(version, baseVersion)

  private def indexUpTo(n: Int): Int = settled(recent.indexUpTo(n))

  /** Changes the index; nobody frees memory of it meanwhile. */
  private def settled[T](change: => T): T = {
    settling = true
    try change
    finally {
      settling = false
      noteReclaimable()
    }
  }

  /**
   * Brings the committed generations into the index, as the next begin would. Does nothing while a transaction is open,
   * or while it is open which attempt at the newest version Spark takes. For any thread.
   */
  def indexCommitted(): Unit = locked {
    if (!closed && recent.pending.nonEmpty && recent.indexed.readers == 0 && !recent.isContested)
      forgetIfInconsistent(indexUpTo(recent.count))
  }

  private def begin(pendingCount: Int, version: VersionId, readOnly: Boolean): Transaction = {
    val above = recent.pending.take(pendingCount).toArray
    val indexedKeys = recent.indexed.generations.lastOption.fold(baseKeys)(_.keys)
    recent.indexed.check(indexedKeys, hasBase = base != null)
    val keys = above.lastOption.fold(indexedKeys)(_.keys)
    val view = new ReadView(version, keys, recent.indexed, above, indexedKeys, base, emptyRangesAt(version))
    try {
      val memtable = new MemTable(memory, conf.spillDirectory, if (readOnly) 0 else recent.expectedKeys)
      val transaction = new Transaction(this, version, readOnly, view, memtable)
      if (readOnly) readers += transaction else writers += transaction
      transaction
    } catch {
      case e: Throwable =>
        view.release()
        retire(base)
        throw e
    }
  }

  private[transaction] def newEmptyRanges(version: VersionId): EmptyRanges = new EmptyRanges(version, conf.fewestPassed)

  private def emptyRangesAt(version: VersionId): EmptyRanges = {
    if (emptyRanges.version != version && version == newest) emptyRanges = newEmptyRanges(version)
    if (emptyRanges.version == version) emptyRanges else newEmptyRanges(version)
  }

  private def baseKeys: Long = if (base == null) 0 else base.keys

  /**
   * Forgets all versions and starts from a base. If the base cannot be opened, all stays as it was, and the directory
   * is given back.
   *
   * @param directory the directory of the base
   * @return the column families of the base
   */
  def reset(directory: BaseDirectory): ColumnFamilies = {
    val opened = open(directory)
    val families = opened.families
    locked {
      if (closed) {
        retire(opened)
        check()
      }
      restart(opened)
    }
    families
  }

  /** Returns the lowest version that a transaction may begin on without a restore, except the empty one. */
  def oldestNumber: Long = locked(baseVersion.number)

  /** Returns true if reading the base has found damage. */
  def isDamaged: Boolean = locked(base != null && base.damaged)

  /**
   * Calls a function with the base that transactions begin on; it stays open meanwhile. None if there is no base, or it
   * cannot be read any more.
   */
  private[incremental] def withBase[T](use: Base => T): Option[T] = {
    val held = locked {
      val good = Option(base).filter(base => !closed && !base.isOver)
      good.foreach(_.retain())
      good
    }
    held.map { base =>
      try use(base)
      finally base.release()
    }
  }

  /** Forgets all versions and starts from the empty version 0. */
  def resetEmpty(): Unit = locked {
    check()
    restart(null)
  }

  private def restart(newBase: Base): Unit = {
    recent.clear()
    retire(base)
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
   * Offers a newer base, which holds a version on the way to the newest. A later begin takes it, or closes it if its
   * version is not on the way. The base is opened in the caller's thread.
   */
  def offerBase(directory: BaseDirectory): Unit = {
    val opened = open(directory)
    locked {
      if (closed) retire(opened)
      else {
        dropOffered()
        offered = opened
      }
    }
  }

  private def dropOffered(): Unit = {
    retire(offered)
    offered = null
  }

  private def adoptOffered(): Unit =
    if (offered != null && !recent.newest.exists(_.number < offered.version.number)) {
      if (position(offered.version) > recent.indexedCount) indexUpTo(position(offered.version))
      if (position(offered.version) > recent.indexedCount && isPinned) restartAbove(position(offered.version))
      else adoptInPlace()
    }

  private def adoptInPlace(): Unit = {
    val i = recent.indexOf(offered.version)
    if (offered.version == baseVersion) swapBase() // the same rows in fewer files
    else if (i < recent.indexed.generationsInBase) dropOffered()
    else if (i < recent.indexedCount) {
      swapBase()
      recent.indexed.generationsInBase = i + 1
    }
  }

  /**
   * Returns true if many versions wait for a transaction that reads the index and has not ended since they were
   * committed: they take memory that no base can free, and each look-up goes through all of them.
   */
  private def isPinned: Boolean =
    recent.indexed.readers > 0 && recent.pending.size > StoreVersions.maxPending && !writers.exists(_.version == newest)

  /** Restarts above the offered base, which holds the first n generations. */
  private def restartAbove(n: Int): Unit = {
    recent.restartAbove(n)
    swapBase()
    noteReclaimable()
  }

  private def swapBase(): Unit = {
    retire(base)
    base = offered
    offered = null
  }

  /** Returns true if memory is full of versions that no base holds, which a merge of kind ingest would free. */
  def wantsIngest: Boolean = locked(recent.needBase)

  /** Returns the memory in use; after [[close]], the memory of open transactions. */
  def memoryUse: MemoryUse = locked {
    val memtables = (writers ++ readers).toSeq.map(_.memtable)
    MemoryUse(
      memtableBytes = memtables.map(_.bytes).sum,
      recentBytes = recent.bytes,
      indexBytes = recent.indexed.indexBytes,
      baseBytes = if (closed || base == null) 0 else base.bytes,
      spilledBytes = recent.spilledBytes + memtables.map(_.spilledBytes).sum)
  }

  /** Closes the store: no transaction begins any more; open ones end as usual. Any number of times, in any thread. */
  def close(): Unit = locked {
    if (!closed) {
      closed = true
      memory.unregister(cache)
      recent.close()
      retire(base)
      dropOffered()
    }
  }

  /**
   * Appends a transaction's changes to the version that it began on, if that version is still on the way to the newest.
   */
  private[transaction] def append(transaction: Transaction, generation: Generation, empty: EmptyRanges): Unit = locked {
    val n = if (closed || (transaction.view.indexed ne recent.indexed)) -1 else position(transaction.version)
    if (n < recent.indexedCount) generation.release()
    else {
      recent.append(n, generation)
      if (offered != null && offered.version.number > transaction.version.number) dropOffered()
      emptyRanges = empty
      noteReclaimable()
    }
  }

  private[transaction] def ended(transaction: Transaction): Unit = locked {
    try transaction.view.release()
    finally {
      retire(transaction.view.base)
      writers -= transaction
      readers -= transaction
      noteReclaimable()
    }
  }

  private def noteReclaimable(): Unit =
    reclaimable = if (closed) 0 else recent.indexed.mergedBytes + recent.otherBytes

  /**
   * Drops merged generations, unless a transaction of another thread reads them or the store is busy, and then the other
   * attempts at the newest version; returns the freed bytes.
   */
  private def reclaim(bytes: Long): Long =
    if (!lock.tryLock()) 0
    else
      try {
        var freed = 0L
        while (mayEvict && freed < bytes) freed += recent.indexed.evict(saving = false)
        if (freed < bytes && !closed && !settling) freed += recent.dropOthers()
        noteReclaimable()
        freed
      } finally unlock()

  /**
   * Returns true if this thread may free memory of merged generations now:
   *   - any thread may if no transaction reads them: a store that asks for memory frees that of others, too;
   *   - the thread of the only transaction that reads them may if that transaction writes, has the same index and base,
   *     and no iterator of it has a pinned record: then nobody else has an address into that memory;
   *   - no thread may while the store is closed or settles.
   */
  private def mayEvict: Boolean =
    !closed && !settling && recent.indexed.evictable &&
      (recent.indexed.readers == 0 || recent.indexed.readers == 1 && writers.exists { t =>
        (t.writingThread eq Thread.currentThread) && (t.view.indexed eq recent.indexed) && (t.view.base eq base) &&
        t.memtable.pins == 0
      })
}

private object StoreVersions {

  /** The number of versions that may wait for a transaction to end. */
  private val maxPending = 8
}

/**
 * The settings of one store's data plane.
 *
 * @param spillDirectory local directory, made when first needed, for memory-mapped files that take the records that the
 *   memory budget has no room for; an open file has no name
 * @param fewestPassed number of removed keys in a row that scans in key order remember and pass over later
 */
final case class StateConf(spillDirectory: File, fewestPassed: Int = 256)
