package org.apache.spark.sql.execution.streaming.state.incremental

/** A scan in key order. */
private[incremental] final class OrderedScan(
    transaction: Transaction,
    overlay: Overlay,
    view: View,
    from: Array[Byte],
    until: Array[Byte])
    extends Scan(transaction, overlay, view, from, until) {
  private val records = inMemory()
  private var next = 0
  private val base = view.baseCursor(from, until)

  /** What memory has of the range, removed keys too: the newest record of each, in key order. */
  private def inMemory(): Array[Long] = {
    val found = new RecordList
    val onePrefix = PrefixIndex.serves(from, until)
    if (onePrefix) overlay.changedWith(from)(found.add) else overlay.changedIn(from, until)(found.add)
    view.pending.indices.foreach { i => addPending(i, found) }
    if (onePrefix) view.recents.foreachWith(from)(addUnchanged(_, view.pending.length, found))
    else view.recents.foreachIn(from, until)(addUnchanged(_, view.pending.length, found))
    found.sorted()
  }

  private def addPending(i: Int, found: RecordList): Unit = {
    val sorted = view.pending(i).sorted
    var next = firstNotBefore(sorted)
    while (next < sorted.length && Record.within(sorted(next), from, until)) {
      addUnchanged(sorted(next), view.pending.length - 1 - i, found)
      next += 1
    }
  }

  private def firstNotBefore(sorted: Array[Long]): Int = {
    var low = 0
    var high = sorted.length
    while (low < high) {
      val middle = (low + high) >>> 1
      val record = sorted(middle)
      if (Bytes.compare(from, Record.keyAddress(record), Record.keyLength(record)) > 0) low = middle + 1 else high = middle
    }
    low
  }

  private def addUnchanged(record: Long, newer: Int, found: RecordList): Unit = {
    val hash = Record.hash(record)
    val at = Record.keyAddress(record)
    val length = Record.keyLength(record)
    if (!changedBefore(hash, at, length) && !view.pendingHas(newer, hash, at, length)) found.add(record)
  }

  protected def step(): Boolean = {
    while (true) {
      val inBase = base != null && base.valid && !beyond(base)
      if (next == records.length && !inBase) return false
      val record = if (next < records.length) records(next) else 0L
      val order =
        if (record == 0) 1
        else if (!inBase) -1
        else
          Bytes.compare(
            null, Record.keyAddress(record), Record.keyLength(record), null, base.keyAddress, base.keyLength)
      if (order <= 0) {
        next += 1
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
