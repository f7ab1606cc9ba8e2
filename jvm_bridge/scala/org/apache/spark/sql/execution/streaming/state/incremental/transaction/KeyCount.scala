package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{OffHeap, Record}
import org.apache.spark.sql.execution.streaming.state.incremental.recent.MemTable

/** A count of the store's keys with a transaction's changes. It is used only within calls of the transaction. */
private[transaction] final class KeyCount(view: ReadView, memtable: MemTable) {

  /**
   * Counts the keys. Looks up the keys that were put or removed without a get.
   *
   * @throws IllegalStateException if the counts contradict each other
   */
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

  /** Looks several keys up at a time, so that their searches wait for memory at the same time. */
  private def resolveAll(): Unit = {
    if (view.isSparse) expectUnknown()
    val slots = new Array[Long](ReadView.prefetchedAtOnce)
    var n = 0
    memtable.foreachSlot { slot =>
      if (memtable.isChange(slot) && !memtable.priorKnown(slot)) {
        slots(n) = slot
        n += 1
        if (n == slots.length) {
          resolve(slots, n)
          n = 0
        }
      }
    }
    resolve(slots, n)
  }

  /** Announces the keys that only the base can know, so that it fetches their blocks several at a time. */
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

  /** Computes the growth of each column family as [[Transaction.growthByFamily]] returns it. */
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

  /** The number of keys, and of their bytes, that are announced at a time. */
  private val maxExpected = 4096
  private val maxExpectedBytes = 1L << 20
}
