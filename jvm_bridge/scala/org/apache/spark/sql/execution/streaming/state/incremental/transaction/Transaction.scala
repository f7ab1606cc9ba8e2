package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import java.io.File

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{DeltaFile, VersionId}
import org.apache.spark.sql.execution.streaming.state.incremental.delta.DeltaWriter
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Record, RowSizes, SlotHash}
import org.apache.spark.sql.execution.streaming.state.incremental.recent.{Generation, MemTable}

/**
 * One task's view of a store: a committed version and, over it, this task's changes. Keys carry their 2-byte
 * column family. Any thread may call it at any time: one call runs at a time, the others wait. Every call but [[abort]]
 * throws an IllegalStateException after the end, and after a call that failed, be it a read or a change: rows may be
 * missing then. Begin another transaction to read what was committed.
 *
 * @param version  the version that it builds on
 * @param readOnly whether changes are refused
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

  /** A record that the last get found in memory, 0 when it found none; until the next change. */
  private var lastFound = 0L

  /** The key, the very array, that the last get of a row that is not in memory found nowhere. */
  private var lastAbsent: Array[Byte] = _
  private var hashedKey: Array[Byte] = _
  private var hash = 0L
  private var delta: DeltaWriter = _

  /** The thread that changes the memtable now: it may drop generations that the view needs no more. */
  @volatile private[transaction] var writingThread: Thread = _

  /** The value of a key, null when absent; the caller may keep the array, and never changes that of the key. */
  def get(key: Array[Byte]): Array[Byte] = {
    calls.enter()
    try lookUp(hashOf(key), key)
    catch { case e: Throwable => calls.fail(e) }
    finally calls.exit()
  }

  /** The hash of a key; that of the array that was asked for last is remembered. */
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
        val asked = view.needsBase
        val value = view.fromBase(key)
        if (asked && !readOnly) memtable.remember(hash, key, value)
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

  /** Whether a key is there. */
  def contains(key: Array[Byte]): Boolean = get(key) != null

  /** The values of keys, in their order, null for those that are absent. */
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

  /** Sets the value of a key; refuses a row that is too long to be read, and can be used afterwards. */
  def put(key: Array[Byte], value: Array[Byte]): Unit = change(key, value)

  /** Removes a key, whether it is there or not. */
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
    lastFound = 0
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
      throw new IllegalStateException(s"The transaction on version ${version.number} of the state store is for reading only")
    }
    writingThread = Thread.currentThread
  }

  private def exitFromChange(): Unit = {
    writingThread = null
    calls.exit()
  }

  /** Adds a value to those of a key: puts it where there is none, else old value, delimiter, value. */
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
            if (slot != 0 && memtable.isChange(slot)) math.min(RowSizes.doubled(joined.length), RowSizes.mostBytes - key.length)
            else joined.length
          changeQuick(hash, key, joined, room, appended = value)
        }
      }
    } catch { case e: Throwable => calls.fail(e) }
    finally exitFromChange()
  }

  /**
   * Rows with from <= key < until (null: to the end), uncommitted ones included. In key order when ordered, or
   * when it is less than a column family; else in the order that is quickest.
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

  /** What is less than a column family is found quickest by its prefix, or through the order of keys. */
  private def begin(from: Array[Byte], until: Array[Byte], ordered: Boolean, skip: Int): Scan =
    if (ordered || from.length > 2 || until != null && until.length > 2) {
      new OrderedScan(this, from, until, skip)
    } else new UnorderedScan(this, from, until, skip)

  /** Removes the rows with from <= key < until (null: to the end); the number of rows that were there. */
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

  /**
   * Number of keys, uncommitted changes counted. Looks up what was put or removed without having been got.
   */
  def keys: Long = {
    calls.enter()
    try count.keys()
    catch { case e: Throwable => calls.fail(e) }
    finally calls.exit()
  }

  /**
   * By how much the changes so far let each column family grow, in keys, by its id; families beyond the end
   * have no changes. Looks up what [[keys]] does.
   */
  def growthByFamily: Array[Long] = {
    calls.enter()
    try count.growthByFamily()
    catch { case e: Throwable => calls.fail(e) }
    finally calls.exit()
  }

  /** Keys that this transaction put, or removed, so far: each counted once, by its last change. */
  def puts: Long = memtable.puts
  def removes: Long = memtable.removes

  /** Look-ups of committed rows so far. */
  def lookUps: LookUps = view.lookUps

  /**
   * Writes the changes, sorted, and last the reserved record with this value, as an SST that must not exist yet. Refuses
   * changes from then on. Whoever stores the file makes it durable.
   */
  def writeDelta(file: File, meta: Array[Byte]): DeltaFile = {
    calls.enter()
    try {
      if (delta == null) delta = memtable.newDelta()
      delta.write(file, meta, memtable.puts, memtable.removes)
    } catch { case e: Throwable => calls.fail(e) }
    finally calls.exit()
  }

  /** Ends the transaction; its changes are now that version, and the next transaction may begin there. */
  def committed(made: VersionId): Unit = {
    enterToWrite()
    val (keys, empty) =
      try (count.keys(), emptyRangesAt(made))
      catch { case e: Throwable => calls.fail(e) }
      finally exitFromChange()
    if (!end()) throw new IllegalStateException(s"The transaction on version ${version.number} of the state store was aborted")
    val changes = Option(delta).map(_.giveRecords())
    delta = null
    memtable.overwritten.free()
    memtable.ordered.free()
    try state.append(this, new Generation(made, keys, memtable, changes), empty)
    finally state.ended(this)
  }

  /** What is known to be empty once the changes are committed; nothing, where they were not written. */
  private def emptyRangesAt(made: VersionId): EmptyRanges =
    if (delta == null) state.newEmptyRanges(made)
    else view.empty.next(made, range => delta.putsIn(range.from, range.until))

  /**
   * Ends the transaction and forgets its changes. Any thread, any number of times; nothing after
   * [[committed]].
   */
  def abort(): Unit = if (end()) {
    if (delta != null) delta.free()
    delta = null
    memtable.free()
    state.ended(this)
  }

  /** Ends it once, when no call is under way any more; whether this call was the first to do so. */
  private def end(): Boolean = {
    val first = calls.end()
    if (first) scans.freeAll()
    first
  }
}
