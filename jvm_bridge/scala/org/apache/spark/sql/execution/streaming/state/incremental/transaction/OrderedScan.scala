package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, MergedRecords, OrderedRecords, PrefixIndex, Record, RecordList}

/** A scan in key order. */
private[transaction] final class OrderedScan(transaction: Transaction, from: Array[Byte], until: Array[Byte], skip: Int)
    extends Scan(transaction, from, until, skip) {
  /** What memory has of the range, removed keys too: the newest record of each key. */
  private val memory = if (PrefixIndex.serves(from, until)) ofPrefix() else ofRange()
  private val base = view.baseCursor(from, until)

  /** A prefix mostly has few records: they are found by it, and sorted. */
  private def ofPrefix(): OrderedRecords = {
    val found = new RecordList
    addWithPrefix(found)
    view.pending.indices.foreach(pendingSources(_).foreach(_.foreach(found.add)))
    found.inOrder()
  }

  private def ofRange(): OrderedRecords = {
    val changes = new RecordList
    memtable.changedIn(from, until)(changes.add)
    val pending = view.pending.indices.flatMap(pendingSources)
    val older = view.indexed.sourcesIn(from, until, isUnchanged(_, view.pending.length))
    new MergedRecords(pending ++ older :+ changes.inOrder())
  }

  protected def step(): Boolean = {
    while (true) {
      val inBase = base != null && base.valid && !beyond(base)
      val record = memory.record
      if (record == 0 && !inBase) return false
      val order =
        if (record == 0) 1
        else if (!inBase) -1
        else
          Bytes.compare(
            null, Record.keyAddress(record), Record.keyLength(record), null, base.keyAddress, base.keyLength)
      if (order <= 0) {
        memory.next()
        if (order == 0) base.next()
        if (!Record.isRemoved(record)) {
          set(record)
          return true
        }
      } else {
        set(base)
        base.next()
        return true
      }
    }
    false
  }

  protected def closeSources(): Unit = if (base != null) base.close()
}
