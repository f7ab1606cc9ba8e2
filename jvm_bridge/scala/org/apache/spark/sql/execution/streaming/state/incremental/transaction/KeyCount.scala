package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{OffHeap, Record}
import org.apache.spark.sql.execution.streaming.state.incremental.recent.MemTable

/** Counts the keys that there are with a transaction's changes. Within its calls. */
private[transaction] final class KeyCount(view: ReadView, memtable: MemTable) {

  /** Number of keys. Looks up what was put or removed without having been got. */
  def keys(): Long = {
    if (memtable.unknown > 0) resolveAll()
    val keys = view.keys + memtable.balance
    if (keys < memtable.puts || memtable.unknown != 0) {
      throw new IllegalStateException(
        s"The transaction on version ${view.version.number} of the state store has lost count: $keys keys of ${view.keys} " +
          s"before, ${memtable.puts} put, ${memtable.removes} removed, ${memtable.unknown} not known")
    }
    keys
  }

  /** Looks some up at a time: what the searches read first is waited for at once. */
  private def resolveAll(): Unit = {
    val some = new Array[Long](ReadView.prefetchedAtOnce)
    var n = 0
    memtable.foreachSlot { slot =>
      if (memtable.isChange(slot) && !memtable.priorKnown(slot)) {
        some(n) = slot
        n += 1
        if (n == some.length) {
          resolve(some, n)
          n = 0
        }
      }
    }
    resolve(some, n)
  }

  private def resolve(slots: Array[Long], n: Int): Unit = {
    var i = 0
    while (i < n) {
      view.prefetch(memtable.record(slots(i)))
      i += 1
    }
    i = 0
    while (i < n) {
      memtable.resolve(slots(i), view.contains(memtable.record(slots(i))))
      i += 1
    }
  }

  /** By how much the changes let each column family grow, as [[Transaction.growthByFamily]] says. */
  def growthByFamily(): Array[Long] = {
    keys()
    var growth = new Array[Long](16)
    memtable.foreachSlot { slot =>
      if (memtable.isChange(slot)) {
        val record = memtable.record(slot)
        val key = Record.keyAddress(record)
        val id = (OffHeap.getByte(null, key) & 0xff) << 8 | OffHeap.getByte(null, key + 1) & 0xff
        val before = if (memtable.wasThere(slot)) 1 else 0
        if (id >= growth.length) growth = java.util.Arrays.copyOf(growth, id + 1)
        growth(id) += (if (Record.isRemoved(record)) 0 else 1) - before
      }
    }
    growth
  }
}
