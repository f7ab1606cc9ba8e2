package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import scala.collection.mutable

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

  /** Looks several keys up at a time, so that the memory that their searches read first is waited for at once. */
  private def resolveAll(): Unit = {
    if (view.isSparse) expectUnknown()
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

  /** Announces the keys that only the base can know, so that their blocks are fetched several at a time. */
  private def expectUnknown(): Unit = {
    val keys = mutable.ArrayBuffer.empty[Array[Byte]]
    var bytes = 0L
    memtable.foreachSlot { slot =>
      if (memtable.isChange(slot) && !memtable.priorKnown(slot)) {
        val record = memtable.record(slot)
        if (!view.overrides(Record.hash(record), Record.keyAddress(record), Record.keyLength(record))) {
          keys += Record.key(record)
          bytes += Record.keyLength(record)
          if (keys.size == KeyCount.maxExpected || bytes >= KeyCount.maxExpectedBytes) {
            view.expect(keys)
            keys.clear()
            bytes = 0
          }
        }
      }
    }
    view.expect(keys)
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

private object KeyCount {

  /** How many keys, and how many bytes of them, are announced at a time. */
  private val maxExpected = 4096
  private val maxExpectedBytes = 1L << 20
}
