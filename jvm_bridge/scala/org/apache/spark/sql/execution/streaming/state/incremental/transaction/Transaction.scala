package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import java.io.File
import java.util.concurrent.atomic.AtomicBoolean
import java.util.concurrent.locks.{LockSupport, ReentrantLock}

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.incremental.base.{Base, BaseDirectory}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{ColumnFamilies, DeltaFile, VersionId}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{
  MemoryUse, OffHeap, Record, RowSizes, SlotHash, StoreMemory
}
import org.apache.spark.sql.execution.streaming.state.incremental.recent.{
  Generation, InconsistentStateException, MemTable, RecentVersions
}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.DeltaWriter

// The versions of a store that this executor can read, and the transactions on them. A task's batch is a transaction:
// `StoreVersions` begins it on a version; it reads single keys, changes them and is committed, whereupon
// `StoreVersions` appends its changes as the next version. Each call of a transaction takes its lock, looks in the
// memtable first and then in the view of the version that the batch began on, and keeps the count of keys.

/**
 * The settings of one store's data plane.
 *
 * @param spillDirectory local directory, made when first needed, for memory-mapped files that take the records that the
 *   memory budget has no room for; an open file has no name
 * @param fewestPassed number of removed keys in a row that scans in key order remember and pass over later
 */
final case class StateConf(spillDirectory: File, fewestPassed: Int = 256)

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
  private var isIndexChanging = false

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
      if (recent.canSwitchTo(version)) changingIndex(recent.switchTo(version))
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

  private def indexUpTo(n: Int): Int = changingIndex(recent.indexUpTo(n))

  /** Changes the index; nobody frees memory of it meanwhile. */
  private def changingIndex[T](change: => T): T = {
    isIndexChanging = true
    try change
    finally {
      isIndexChanging = false
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
  def wantsIngest: Boolean = locked(recent.needsIngest)

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
        if (freed < bytes && !closed && !isIndexChanging) freed += recent.dropOthers()
        noteReclaimable()
        freed
      } finally unlock()

  /**
   * Returns true if this thread may free memory of merged generations now:
   *   - any thread may if no transaction reads them: a store that asks for memory frees that of others, too;
   *   - the thread of the only transaction that reads them may if that transaction writes, has the same index and base,
   *     and no iterator of it has a pinned record: then nobody else has an address into that memory;
   *   - no thread may while the store is closed or its index is being changed.
   */
  private def mayEvict: Boolean =
    !closed && !isIndexChanging && recent.indexed.evictable &&
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
 * The view of a store that a task has: a committed version and, over it, the task's changes. Keys carry their 2-byte
 * column family.
 *
 * Any thread may call it at any time: one call runs at a time, the others wait. Every call but [[abort]] throws an
 * IllegalStateException after the end, and after a failed call, be it a read or a change: rows may be missing then.
 * Begin another transaction to read the committed rows.
 *
 * @param version the version that the transaction builds on
 * @param readOnly true if changes are refused
 */
final class Transaction private[transaction] (
    state: StoreVersions,
    val version: VersionId,
    val readOnly: Boolean,
    private[transaction] val view: ReadView,
    private[transaction] val memtable: MemTable) {
  private[transaction] val calls = new CallLock(version)
  private[transaction] val scans = new ScanMemory(memtable)
  private val count = new KeyCount(view, memtable)

  /** The record that the last get found in memory, 0 if it found none; until the next change. */
  private var lastFound = 0L

  /** The array of the key of the last get, if that found the key neither in memory nor in the base. */
  private var lastAbsent: Array[Byte] = _
  private var hashedKey: Array[Byte] = _
  private var hash = 0L
  private var delta: DeltaWriter = _

  /** The thread that changes the memtable now: it may drop generations that the view does not need any more. */
  @volatile private[transaction] var writingThread: Thread = _

  /**
   * Returns the value of a key; null if it is absent. The caller may keep the array of the value, and never changes the
   * array of the key.
   */
  def get(key: Array[Byte]): Array[Byte] = {
    calls.enter()
    try lookUp(hashOf(key), key)
    catch { case e: Throwable => calls.fail(e) }
    finally calls.exit()
  }

  /** Returns the hash of a key; remembers the hash of the array of the last call. */
  private def hashOf(key: Array[Byte]): Long = {
    if (key ne hashedKey) {
      hash = SlotHash.of(key)
      hashedKey = key
    }
    hash
  }

  private def lookUp(hash: Long, key: Array[Byte]): Array[Byte] = {
    val slot = memtable.find(hash, key)
    if (slot != 0) valueOf(memtable.record(slot))
    else {
      val record = view.record(hash, key)
      lastFound = record
      if (record != 0) valueOf(record)
      else {
        val readsBase = view.needsBase
        val value = view.fromBase(key)
        if (readsBase && !readOnly) memtable.remember(hash, key, value)
        if (value == null) lastAbsent = key
        value
      }
    }
  }

  private def isOnlyInBase(key: Array[Byte]): Boolean = {
    val hash = SlotHash.of(key)
    memtable.find(hash, key) == 0 && !view.knows(hash, key)
  }

  private def valueOf(record: Long): Array[Byte] = if (Record.isRemoved(record)) null else Record.value(record)

  /** Returns true if a key has a value. */
  def contains(key: Array[Byte]): Boolean = get(key) != null

  /** Returns the values of keys, in the order of the keys; null for absent keys. */
  def multiGet(keys: Array[Array[Byte]]): Array[Array[Byte]] = {
    calls.enter()
    try {
      if (view.isSparse) view.expect(keys.filter(isOnlyInBase))
      val values = new Array[Array[Byte]](keys.length)
      var i = 0
      while (i < keys.length) {
        values(i) = lookUp(SlotHash.of(keys(i)), keys(i))
        i += 1
      }
      values
    } catch { case e: Throwable => calls.fail(e) }
    finally calls.exit()
  }

  /** True if rows may have to be fetched from storage. */
  def isSparse: Boolean = view.isSparse

  /** Fetch the blocks that look-ups of these keys will read, many at a time. */
  def expect(keys: Iterable[Array[Byte]]): Unit = {
    calls.enter()
    try if (view.isSparse) view.expect(keys.filter(isOnlyInBase))
    catch { case e: Throwable => calls.fail(e) }
    finally calls.exit()
  }

  /** Takes over the rows that an earlier transaction on the same version has read ahead. */
  def inherit(from: Transaction): Unit = {
    from.calls.enter()
    try view.inherit(from.view)
    catch { case e: Throwable => from.calls.fail(e) }
    finally from.calls.exit()
  }

  /**
   * Sets the value of a key.
   *
   * @throws IllegalArgumentException if the row is too long to be read; the transaction can be used afterwards
   */
  def put(key: Array[Byte], value: Array[Byte]): Unit = change(key, value)

  /** Removes a key, which may be absent. */
  def remove(key: Array[Byte]): Unit = change(key, null)

  private def change(key: Array[Byte], value: Array[Byte]): Unit = {
    RowSizes.check(if (value == null) "remove" else "put", key.length, if (value == null) 0 else value.length)
    enterToChange()
    try changeQuick(hashOf(key), key, value, if (value == null) 0 else value.length)
    catch { case e: Throwable => calls.fail(e) }
    finally exitFromChange()
  }

  private def changeQuick(
      hash: Long,
      key: Array[Byte],
      value: Array[Byte],
      room: Int,
      appended: Array[Byte] = null): Unit = {
    val slot = memtable.find(hash, key)
    val prior =
      if (slot != 0) 0L
      else if (key eq lastAbsent) MemTable.wasAbsent
      else if (lastFound == 0 || !Record.hasKey(lastFound, hash.toInt, key)) 0L
      else if (Record.isRemoved(lastFound)) MemTable.wasAbsent
      else MemTable.wasPresent
    memtable.change(slot, hash, key, value, room, prior, appended)
  }

  /** Begins a call that changes something. */
  private def enterToChange(): Unit = {
    enterToWrite()
    if (delta != null) {
      exitFromChange()
      throw new IllegalStateException(
        s"The changes on version ${version.number} of the state store are being committed: no more can be made")
    }
  }

  private def enterToWrite(): Unit = {
    calls.enter()
    if (readOnly) {
      calls.exit()
      throw new IllegalStateException(
        s"The transaction on version ${version.number} of the state store is for reading only")
    }
    writingThread = Thread.currentThread
  }

  /** Ends a call that took memory for a change, and may have freed that of committed rows for it. */
  private def exitFromChange(): Unit = {
    writingThread = null
    lastFound = 0
    calls.exit()
  }

  /** Appends a value to a key: puts it if the key is absent; else puts the old value, the delimiter and the value. */
  def append(key: Array[Byte], value: Array[Byte], delimiter: Byte): Unit = {
    RowSizes.check("merge", key.length, value.length)
    enterToChange()
    try {
      val hash = SlotHash.of(key)
      val slot = memtable.find(hash, key)
      if (memtable.appendRoom(slot) > value.length) memtable.append(slot, delimiter, value)
      else {
        val old = lookUp(hash, key)
        if (old == null) changeQuick(hash, key, value, value.length, appended = value)
        else {
          RowSizes.check("merge", key.length, old.length + 1L + value.length)
          val joined = java.util.Arrays.copyOf(old, old.length + 1 + value.length)
          joined(old.length) = delimiter
          System.arraycopy(value, 0, joined, old.length + 1, value.length)
          val room =
            if (slot != 0 && memtable.isChange(slot)) math.min(RowSizes.doubled(joined.length),
              RowSizes.maxBytes - key.length)
            else joined.length
          changeQuick(hash, key, joined, room, appended = value)
        }
      }
    } catch { case e: Throwable => calls.fail(e) }
    finally exitFromChange()
  }

  /**
   * Scans the rows with from <= key < until (null: to the end), uncommitted ones, too: in key order if `ordered`, or if
   * the range is less than a column family; else in the quickest order.
   */
  private[incremental] def scan(from: Array[Byte], until: Array[Byte], ordered: Boolean, skip: Int = 0): Scan = {
    calls.enter()
    try {
      val scan = begin(from, until, ordered, skip)
      scan.pin()
      scan
    } catch { case e: Throwable => calls.fail(e) }
    finally calls.exit()
  }

  /** Begins a scan. Less than a column family is found quickest by its prefix, or through the order of keys. */
  private def begin(from: Array[Byte], until: Array[Byte], ordered: Boolean, skip: Int): Scan =
    if (ordered || from.length > 2 || until != null && until.length > 2) {
      new OrderedScan(this, from, until, skip)
    } else new UnorderedScan(this, from, until, skip)

  /**
   * Removes the rows with from <= key < until (null: to the end).
   *
   * @return the number of removed rows
   */
  def removeRange(from: Array[Byte], until: Array[Byte]): Long = {
    val rows = scan(from, until, ordered = false)
    var removed = 0L
    try
      while (rows.advance()) {
        change(rows.key, null)
        removed += 1
      }
    finally rows.close()
    removed
  }

  /** Returns the number of keys, with uncommitted changes. Looks up the keys that were put or removed without a get. */
  def keys: Long = {
    calls.enter()
    try count.keys()
    catch { case e: Throwable => calls.fail(e) }
    finally calls.exit()
  }

  /**
   * Returns the growth of each column family by the changes so far, in keys, by the family's id; families beyond the
   * end of the array have no changes. Looks up the same keys as [[keys]].
   */
  def growthByFamily: Array[Long] = {
    calls.enter()
    try count.growthByFamily()
    catch { case e: Throwable => calls.fail(e) }
    finally calls.exit()
  }

  /** The numbers of keys that the transaction put, or removed, so far: each key counts once, by its last change. */
  def puts: Long = memtable.puts
  def removes: Long = memtable.removes

  /** The look-ups of committed rows so far. */
  def lookUps: LookUps = view.lookUps

  /**
   * Writes the changes, sorted, into an SST file. Refuses changes from then on. The caller makes the file durable.
   *
   * @param file the file, which must not exist
   * @param meta the value of the reserved record, the last of the file
   */
  def writeDelta(file: File, meta: Array[Byte]): DeltaFile = {
    calls.enter()
    try {
      if (delta == null) delta = memtable.newDelta()
      delta.write(file, meta, memtable.puts, memtable.removes)
    } catch { case e: Throwable => calls.fail(e) }
    finally calls.exit()
  }

  /** Ends the transaction; its changes lead to the version `made`, on which the next transaction may begin. */
  def committed(made: VersionId): Unit = {
    enterToWrite()
    val (keys, empty) =
      try (count.keys(), emptyRangesAt(made))
      catch { case e: Throwable => calls.fail(e) }
      finally exitFromChange()
    if (!end())
      throw new IllegalStateException(s"The transaction on version ${version.number} of the state store was aborted")
    val changes = Option(delta).map(_.giveRecords())
    delta = null
    memtable.overwritten.free()
    memtable.ordered.free()
    try state.append(this, new Generation(made, keys, memtable, changes), empty)
    finally state.ended(this)
  }

  /**
   * Returns the ranges that are known to be empty once the changes are committed; no range if the changes were not
   * written.
   */
  private def emptyRangesAt(made: VersionId): EmptyRanges =
    if (delta == null) state.newEmptyRanges(made)
    else view.empty.next(made, range => delta.putsIn(range.from, range.until))

  /**
   * Ends the transaction and forgets its changes. For any thread, any number of times; does nothing after
   * [[committed]].
   */
  def abort(): Unit = if (end()) {
    if (delta != null) delta.free()
    delta = null
    memtable.free()
    state.ended(this)
  }

  /** Ends the transaction once, when no call runs any more; returns true for the first caller. */
  private def end(): Boolean = {
    val first = calls.end()
    if (first) scans.freeAll()
    first
  }
}

/**
 * A lock that lets one call of a transaction run at a time, and none after the end or after a failed call. For any
 * thread; calls do not nest.
 *
 * @param version the version that the transaction is on
 */
private[transaction] final class CallLock(version: VersionId) {
  private val busy = new AtomicBoolean
  private val finished = new AtomicBoolean

  /** True if calls may begin: false after the end and after a failure. */
  @volatile private var isOpen = true
  @volatile private var hasEnded = false

  /** The exception of the first failed call. Written and read within a call. */
  private var failure: Throwable = _

  /**
   * Begins a call: waits until no other runs. This costs a volatile write, unless another thread is in a call.
   *
   * @throws IllegalStateException after the end, and after a failed call
   */
  def enter(): Unit = {
    acquire()
    if (!isOpen) refuse()
  }

  private def refuse(): Nothing = {
    val cause = failure
    exit()
    val transaction = s"The transaction on version ${version.number} of the state store"
    if (hasEnded) throw new IllegalStateException(s"$transaction has ended")
    throw new IllegalStateException(
      s"A call of the transaction on version ${version.number} of the state store failed; " +
        s"it can only be aborted. The failure was: $cause",
      cause)
  }

  def exit(): Unit = busy.lazySet(false)

  /**
   * Notes, within a call, that the call failed, and throws its error. No call may begin afterwards, because it would
   * read or commit half of the failed call's work.
   */
  def fail(cause: Throwable): Nothing = {
    if (failure == null) failure = cause
    isOpen = false
    throw cause
  }

  private def acquire(): Unit = if (!busy.compareAndSet(false, true)) acquireLater()

  /**
   * Waits for the end of another call: spins first, because most calls are short. The wait continues if the thread is
   * interrupted.
   */
  private def acquireLater(): Unit = {
    var interrupted = false
    var spins = 0
    while (busy.get || !busy.compareAndSet(false, true)) {
      spins += 1
      if (spins < CallLock.maxSpins) Thread.onSpinWait()
      else {
        interrupted |= Thread.interrupted()
        LockSupport.parkNanos(CallLock.pauseNs)
      }
    }
    if (interrupted) Thread.currentThread.interrupt()
  }

  /** Runs an action within a call, even after a failure, unless the transaction has ended. */
  def unlessEnded(action: => Unit): Unit = {
    acquire()
    try if (!hasEnded) action
    finally exit()
  }

  /**
   * Ends the transaction: no call begins any more, and none runs when this returns.
   *
   * @return true if this was the first call of `end`
   */
  def end(): Boolean = {
    hasEnded = true
    isOpen = false
    acquire()
    exit()
    finished.compareAndSet(false, true)
  }
}

private object CallLock {
  private val maxSpins = 1000
  private val pauseNs = 50000L
}

/** A count of the store's keys with a transaction's changes. It is used only within calls of the transaction. */
private[transaction] final class KeyCount(view: ReadView, memtable: MemTable) {

  /**
   * Counts the keys. Looks up the keys that were put or removed without a get.
   *
   * @throws IllegalStateException if the counts contradict each other
   */
  def keys(): Long = {
    if (memtable.unknown > 0) resolveAll()
    val keys = view.keys + memtable.balance
    if (keys < memtable.puts || memtable.unknown != 0) {
      throw new IllegalStateException(
        s"The transaction on version ${view.version.number} of the state store has lost count: $keys keys of ${view.keys} " +
          s"before, ${memtable.puts} put, ${memtable.removes} removed, ${memtable.unknown} not known")
    }
    keys
  }

  /** Looks several keys up at a time, so that their searches wait for memory at the same time. */
  private def resolveAll(): Unit = {
    if (view.isSparse) expectUnknown()
    val slots = new Array[Long](ReadView.prefetchedAtOnce)
    var n = 0
    memtable.foreachSlot { slot =>
      if (memtable.isChange(slot) && !memtable.priorKnown(slot)) {
        slots(n) = slot
        n += 1
        if (n == slots.length) {
          resolve(slots, n)
          n = 0
        }
      }
    }
    resolve(slots, n)
  }

  /** Announces the keys that only the base can know, so that it fetches their blocks several at a time. */
  private def expectUnknown(): Unit = {
    val keys = mutable.ArrayBuffer.empty[Array[Byte]]
    var bytes = 0L
    memtable.foreachSlot { slot =>
      if (memtable.isChange(slot) && !memtable.priorKnown(slot)) {
        val record = memtable.record(slot)
        if (!view.overrides(Record.hash(record), Record.keyAddress(record), Record.keyLength(record))) {
          keys += Record.key(record)
          bytes += Record.keyLength(record)
          if (keys.size == KeyCount.maxExpected || bytes >= KeyCount.maxExpectedBytes) {
            view.expect(keys)
            keys.clear()
            bytes = 0
          }
        }
      }
    }
    view.expect(keys)
  }

  private def resolve(slots: Array[Long], n: Int): Unit = {
    var i = 0
    while (i < n) {
      view.prefetch(memtable.record(slots(i)))
      i += 1
    }
    i = 0
    while (i < n) {
      memtable.resolve(slots(i), view.contains(memtable.record(slots(i))))
      i += 1
    }
  }

  /** Computes the growth of each column family as [[Transaction.growthByFamily]] returns it. */
  def growthByFamily(): Array[Long] = {
    keys()
    var growth = new Array[Long](16)
    memtable.foreachSlot { slot =>
      if (memtable.isChange(slot)) {
        val record = memtable.record(slot)
        val key = Record.keyAddress(record)
        val id = (OffHeap.getByte(null, key) & 0xff) << 8 | OffHeap.getByte(null, key + 1) & 0xff
        val before = if (memtable.wasThere(slot)) 1 else 0
        if (id >= growth.length) growth = java.util.Arrays.copyOf(growth, id + 1)
        growth(id) += (if (Record.isRemoved(record)) 0 else 1) - before
      }
    }
    growth
  }
}

private object KeyCount {

  /** The number of keys, and of their bytes, that are announced at a time. */
  private val maxExpected = 4096
  private val maxExpectedBytes = 1L << 20
}
