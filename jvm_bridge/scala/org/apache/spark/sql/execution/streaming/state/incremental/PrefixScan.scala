package org.apache.spark.sql.execution.streaming.state.incremental

/** A scan of a prefix that [[PrefixIndex.serves]], without order: what memory has, then the base. */
private[incremental] final class PrefixScan(transaction: Transaction, from: Array[Byte], until: Array[Byte], skip: Int)
    extends Scan(transaction, from, until, skip) {
  private val found = new RecordList
  private var next = 0
  private val base = view.baseCursor(from, until)

  addWithPrefix(found)
  view.pending.indices.foreach(pendingSource(_).foreach(found.add))

  protected def step(): Boolean = {
    while (next < found.size) {
      val record = found(next)
      next += 1
      if (!Record.isRemoved(record)) {
        set(record)
        return true
      }
    }
    step(base)
  }

  protected def closeSources(): Unit = if (base != null) base.close()
}
