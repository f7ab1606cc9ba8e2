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

  private def inMemory(): Array[Long] = {
    val found = Array.newBuilder[Long]
    found ++= changedRecords()
    def add(record: Long, n: Int): Unit =
      if (Record.within(record, from, until)) {
        val hash = Record.hash(record)
        val at = Record.keyAddress(record)
        val length = Record.keyLength(record)
        if (!changedBefore(hash, at, length) && !view.pendingHas(n, hash, at, length)) found += record
      }
    view.pending.indices.foreach { i => view.pending(i).overlay.records().foreach(add(_, view.pending.length - 1 - i)) }
    var slot = 0L
    while (slot < view.recents.index.size) {
      val record = view.recents.index.at(slot)
      if (record != 0) add(record, view.pending.length)
      slot += 1
    }
    val sorted = found.result()
    KeyOrder.sort(sorted)
    sorted
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
