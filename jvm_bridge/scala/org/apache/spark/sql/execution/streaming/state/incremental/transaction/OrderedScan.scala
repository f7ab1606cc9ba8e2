package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, OrderedRecords, PrefixIndex, Record}

/** A scan in key order. */
private[incremental] final class OrderedScan(transaction: Transaction, from: Array[Byte], until: Array[Byte], skip: Int)
    extends Scan(transaction, from, until, skip) {
  /** What the transaction has changed in the range, removed keys too. */
  private val changes: OrderedRecords =
    transaction.scans.keep(
      if (PrefixIndex.serves(from, until)) memtable.ordered.beginningWith(from, until) else memtable.ordered.in(from, until))
  private val committed = new CommittedRows(view, memtable, transaction.scans, from, until)

  /** Whether the row before this one is that of the committed ones, or there was none. */
  private var leavesCommitted = true

  /** How many keys without a row it has passed so far, this transaction's own not counted. */
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
