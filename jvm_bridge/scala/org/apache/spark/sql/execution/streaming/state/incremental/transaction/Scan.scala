package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import java.util.Arrays

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{
  Bytes, OrderedRecords, PrefixIndex, Record, RecordSpool, SlotHash
}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.Cursor

/**
 * A scan of a transaction: the rows with from <= key < until of its changes, of its view's generations, and of the
 * base. Each source leaves out the keys that a newer source has a record of. The scan starts before the first row,
 * shows the rows as they were when it began, whatever the transaction changes meanwhile, and ends with the transaction.
 * For the transaction's calls.
 *
 * @param skip number of bytes at the beginning of the keys that the scan does not show
 */
private[incremental] abstract class Scan(
    transaction: Transaction,
    from: Array[Byte],
    until: Array[Byte],
    skip: Int)
    extends AutoCloseable {
  protected final val memtable = transaction.memtable
  protected final val view = transaction.view
  private val buffer = transaction.scans.buffer

  /** The number of keys that the transaction had changed when the scan began. */
  protected final val changed = memtable.changes
  private var open = true

  /** The array with the row, which stays as it is, and the row's place in it. Null if there is no row. */
  final var bytes: Array[Byte] = _
  final var keyAt = 0
  final var keyLength = 0
  final var valueLength = 0

  /**
   * Keeps the memtable from overwriting records in place until the scan is closed. Call this once, when the scan is
   * open.
   */
  private[transaction] final def pin(): Unit = memtable.pins += 1

  final def valueAt: Int = keyAt + keyLength
  /**
   * Copies the key, without the bytes that the scan does not show, or the value of the row that the last [[advance]]
   * moved to; the caller may keep the arrays.
   */
  final def key: Array[Byte] = Arrays.copyOfRange(bytes, keyAt, valueAt)
  final def value: Array[Byte] = Arrays.copyOfRange(bytes, valueAt, valueAt + valueLength)

  /** Moves to the next row; returns false if there is none, at each further call, too. */
  final def advance(): Boolean = {
    transaction.calls.enter()
    try {
      val found = open && step()
      if (!found) {
        bytes = null
        finish()
      }
      found
    } catch { case e: Throwable => transaction.calls.fail(explained(e)) }
    finally transaction.calls.exit()
  }

  private def explained(error: Throwable): Throwable = error match {
    case _: InternalError if view.base != null => view.base.noteFailure(error)
    case _ => error
  }

  /** Closes the scan; may be called any number of times. A scan that reached its end is closed. */
  final def close(): Unit = if (open) transaction.calls.unlessEnded(finish())

  private def finish(): Unit = if (open) {
    open = false
    memtable.pins -= 1
    closeSources()
  }

  /** Moves to the next row and sets it; returns false if there is none. */
  protected def step(): Boolean

  protected def closeSources(): Unit

  protected final def set(record: Long): Unit = {
    keyLength = Record.keyLength(record) - skip
    valueLength = Record.valueLength(record)
    keyAt = buffer.copy(Record.keyAddress(record) + skip, Math.addExact(keyLength, valueLength))
    bytes = buffer.bytes
  }

  protected final def set(cursor: Cursor): Unit = {
    keyLength = cursor.keyLength - skip
    valueLength = cursor.valueLength
    keyAt = buffer.copy(cursor.keyAddress + skip, keyLength, cursor.valueAddress, valueLength)
    bytes = buffer.bytes
  }

  /** Returns true if the transaction had changed a key when the scan began. */
  protected final def changedBefore(hash: Int, keyAt: Long, length: Int): Boolean =
    changed > 0 && {
      val slot = memtable.find(hash, keyAt, length)
      slot != 0 && memtable.changedBefore(slot, changed)
    }

  /** Returns the changes so far in the range, removed keys too; give the list back to the transaction. */
  protected final def changedRecords(): RecordSpool = {
    val found = transaction.scans.newSpool()
    if (changed > 0) memtable.foreachChange(record => if (Record.within(record, from, until)) found.add(record))
    found
  }

  /** Moves to the next row of the base that memory has no record of; the base may be null. */
  protected final def step(base: Cursor): Boolean = {
    while (base != null && base.isBefore(until)) {
      val isShown = isNewest(base)
      if (isShown) set(base)
      base.next()
      if (isShown) return true
    }
    false
  }

  private def isNewest(cursor: Cursor): Boolean = {
    val hash = SlotHash.of(null, cursor.keyAddress, cursor.keyLength).toInt
    !changedBefore(hash, cursor.keyAddress, cursor.keyLength) &&
    !view.overrides(hash, cursor.keyAddress, cursor.keyLength)
  }
}

/** A scan in key order. */
private[incremental] final class OrderedScan(transaction: Transaction, from: Array[Byte], until: Array[Byte], skip: Int)
    extends Scan(transaction, from, until, skip) {
  /** The changes of the transaction in the range, removed keys too. */
  private val changes: OrderedRecords =
    transaction.scans.keep(
      if (PrefixIndex.serves(from, until)) memtable.ordered.beginningWith(from, until)
      else memtable.ordered.in(from, until))
  private val committed = new CommittedRows(view, memtable, transaction.scans, from, until)

  /** True if the row before this one is a committed row, or if there was none. */
  private var leavesCommitted = true

  /** The number of keys without a row that the scan has passed, without the transaction's own. */
  def passed: Long = committed.passed

  protected def step(): Boolean = {
    if (leavesCommitted) committed.next()
    leavesCommitted = false
    var found = false
    while (!found && (changes.record != 0 || committed.isAtRow)) {
      val change = changes.record
      val order =
        if (change == 0) 1
        else if (!committed.isAtRow) -1
        else
          Bytes.compare(
            null, Record.keyAddress(change), Record.keyLength(change), null, committed.keyAddress, committed.keyLength)
      if (order <= 0) {
        changes.next()
        if (order == 0) committed.next()
        found = !Record.isRemoved(change)
        if (found) set(change)
      } else {
        if (committed.record == 0) set(committed.cursor) else set(committed.record)
        leavesCommitted = true
        found = true
      }
    }
    found
  }

  protected def closeSources(): Unit = {
    transaction.scans.free(changes)
    committed.close()
  }
}
