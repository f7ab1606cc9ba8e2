package org.apache.spark.sql.execution.streaming.state.incremental.recent

import java.util.concurrent.atomic.AtomicInteger

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.memory.KeyOrder

/**
 * The changes that led to a version, frozen. Shared by counted references; its memory goes with the last.
 *
 * @param at      that version
 * @param keys    number of keys of the store at that version
 * @param memtable the changes; its table is there until they are in the index
 */
private[incremental] final class Generation(val at: VersionId, val keys: Long, val memtable: MemTable) {
  private val references = new AtomicInteger(1)

  /** Its place among all that came into the index of a store, oldest first. */
  var sequence = 0L

  /** How many keys it has a record of. */
  val records: Long = memtable.size

  private var order: Array[Long] = _

  /** All its records in key order; sorted at the first call. Any thread, while the memtable has its table. */
  def sorted: Array[Long] = synchronized {
    if (order == null) {
      order = memtable.records()
      KeyOrder.sort(order)
    }
    order
  }

  def forgetOrder(): Unit = synchronized { order = null }

  /** Whether another index has it too, or a transaction reads it. */
  def isShared: Boolean = references.get > 1

  def retain(): Unit = references.incrementAndGet()

  def release(): Unit = if (references.decrementAndGet() == 0) memtable.free()
}
