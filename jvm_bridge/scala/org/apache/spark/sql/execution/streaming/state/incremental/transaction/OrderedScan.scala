package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, MergedRecords, PrefixIndex, Record, RecordList, SortedRecords}

/** A scan in key order. */
private[transaction] final class OrderedScan(transaction: Transaction, from: Array[Byte], until: Array[Byte], skip: Int)
    extends Scan(transaction, from, until, skip) {
  private val memory = new MergedRecords(inMemory())
  private val base = view.baseCursor(from, until)

  /** What memory has of the range, removed keys too: the newest record of each key, in one of the sources. */
  private def inMemory(): Seq[SortedRecords] = {
    val found = new RecordList
    val pending = view.pending.indices.flatMap(pendingSources)
    if (PrefixIndex.serves(from, until)) {
      addWithPrefix(found)
      pending :+ source(found.sorted())
    } else {
      memtable.changedIn(from, until)(found.add)
      val older = view.indexed.sourcesIn(from, until, isUnchanged(_, view.pending.length))
      pending ++ older :+ source(found.sorted())
    }
  }

  private def source(sorted: Array[Long]): SortedRecords =
    new SortedRecords(sorted(_), 0, sorted.length, null, _ => true)

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
