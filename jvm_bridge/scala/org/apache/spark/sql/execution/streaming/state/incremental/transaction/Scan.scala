package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import java.util.Arrays

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Record, RecordSpool, SlotHash}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.Cursor

/**
 * A scan of a transaction: the rows within from <= key < until of its changes, of its view's generations, and
 * of the base. Each source leaves out what a newer one has a record of. It starts before the first row, shows
 * the rows as they were when it began, whatever the transaction changes meanwhile, and ends with the
 * transaction. Used by the transaction's thread.
 *
 * @param skip    how many first bytes of the keys it does not show
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

  /** How many keys the transaction had changed when the scan began. */
  protected final val changed = memtable.changes
  private var open = true

  /** Where the row is: an array that stays as it is, and places in it. Null when there is none. */
  final var bytes: Array[Byte] = _
  final var keyAt = 0
  final var keyLength = 0
  final var valueLength = 0

  /** Keeps the memtable from overwriting records in place until the scan is closed. Called once, when it is open. */
  private[transaction] final def pin(): Unit = memtable.pins += 1

  final def valueAt: Int = keyAt + keyLength
  /**
   * The key, without the bytes that it does not show, and the value of the row that the last [[advance]] moved
   * to, in new arrays that the caller may keep.
   */
  final def key: Array[Byte] = Arrays.copyOfRange(bytes, keyAt, valueAt)
  final def value: Array[Byte] = Arrays.copyOfRange(bytes, valueAt, valueAt + valueLength)

  /** Moves to the next row; false when there is none, again and again. */
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

  /** Any number of times; a scan that reached its end is closed. */
  final def close(): Unit = if (open) transaction.calls.unlessEnded(finish())

  private def finish(): Unit = if (open) {
    open = false
    memtable.pins -= 1
    closeSources()
  }

  /** Moves to the next row and sets it. */
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

  /** Whether the transaction had changed that key when the scan began. */
  protected final def changedBefore(hash: Int, keyAt: Long, length: Int): Boolean =
    changed > 0 && {
      val slot = memtable.find(hash, keyAt, length)
      slot != 0 && memtable.changedBefore(slot, changed)
    }

  /** The changes so far in the range, removed keys too; to be given back to the transaction. */
  protected final def changedRecords(): RecordSpool = {
    val found = transaction.scans.newSpool()
    if (changed > 0) memtable.foreachChange(record => if (Record.within(record, from, until)) found.add(record))
    found
  }

  /** Moves to the next row of the base that memory has no record of; there may be no base. */
  protected final def step(base: Cursor): Boolean = {
    while (base != null && base.isBefore(until)) {
      val shown = isNewest(base)
      if (shown) set(base)
      base.next()
      if (shown) return true
    }
    false
  }

  private def isNewest(cursor: Cursor): Boolean = {
    val hash = SlotHash.of(null, cursor.keyAddress, cursor.keyLength).toInt
    !changedBefore(hash, cursor.keyAddress, cursor.keyLength) &&
    !view.overrides(hash, cursor.keyAddress, cursor.keyLength)
  }
}
