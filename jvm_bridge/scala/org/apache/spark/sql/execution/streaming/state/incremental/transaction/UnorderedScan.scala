package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{ArenaWalk, Record}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.Cursor

/**
 * A scan without order: the changes, then the generations in the order of their tables, then the base in its own order.
 */
private[transaction] final class UnorderedScan(transaction: Transaction, from: Array[Byte], until: Array[Byte],
    skip: Int)
    extends Scan(transaction, from, until, skip) {
  private val changes = changedRecords()
  private var pendingLeft = view.pending.length
  private var next = 0L
  private var slot = 0L
  private val index = view.indexed.index

  /**
   * True to read the records in the order in which they lie in memory. False to follow the index, because most records
   * in memory are overwritten ones.
   */
  private val walks = view.indexed.records <= index.count * 3
  private val arenas = view.indexed.arenas
  private var walk: ArenaWalk = _
  private val records = new Array[Long](UnorderedScan.atOnce)
  private val newest = new Array[Long](UnorderedScan.atOnce)
  private var read = 0
  private var shown = 0
  private var base: Cursor = _
  private var baseBegun = false

  protected def step(): Boolean = stepChanges() || stepPending() || stepIndex() || stepBase()

  private def stepChanges(): Boolean = {
    var record = changes.next()
    while (record != 0 && Record.isRemoved(record)) record = changes.next()
    if (record != 0) set(record)
    record != 0
  }

  private def stepPending(): Boolean = {
    while (pendingLeft > 0) {
      val memtable = view.pending(pendingLeft - 1).memtable
      while (next < memtable.slotCount) {
        val record = memtable.recordAt(next)
        next += 1
        if (record != 0 && shows(record, view.pending.length - pendingLeft)) {
          set(record)
          return true
        }
      }
      pendingLeft -= 1
      next = 0
    }
    false
  }

  private def stepIndex(): Boolean = if (walks) stepGenerations() else stepSlots()

  private def stepGenerations(): Boolean = {
    while (shown < read || readSome()) {
      val record = newest(shown)
      shown += 1
      if (shows(record, view.pending.length)) {
        set(record)
        return true
      }
    }
    false
  }

  /** Reads further records of the arenas; returns false at their end. */
  private def readSome(): Boolean = {
    read = 0
    shown = 0
    while (read == 0 && (walk != null || arenas.hasNext)) {
      if (walk == null) walk = arenas.next()
      val n = walk.next(records)
      if (n == 0) walk = null
      read = view.indexed.newest(records, n, newest)
    }
    read > 0
  }

  private def stepSlots(): Boolean = {
    while (slot < index.size) {
      val record = index.at(slot)
      slot += 1
      if (record != 0 && shows(record, view.pending.length)) {
        set(record)
        return true
      }
    }
    false
  }

  /**
   * Returns true if a record is a row in the range, and neither the n newest generations nor the changes have its key.
   */
  private def shows(record: Long, n: Int): Boolean =
    !Record.isRemoved(record) && Record.within(record, from, until) && {
      val hash = Record.hash(record)
      val at = Record.keyAddress(record)
      val length = Record.keyLength(record)
      !changedBefore(hash, at, length) && !(n > 0 && view.pendingHas(n, hash, at, length))
    }

  private def stepBase(): Boolean = {
    if (!baseBegun) {
      base = view.baseCursor(from, until)
      baseBegun = true
    }
    step(base)
  }

  protected def closeSources(): Unit = {
    transaction.scans.free(changes)
    if (base != null) base.close()
  }
}

private[transaction] object UnorderedScan {
  private val atOnce = 64
}
