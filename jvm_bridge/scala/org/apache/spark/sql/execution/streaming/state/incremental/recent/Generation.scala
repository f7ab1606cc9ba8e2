package org.apache.spark.sql.execution.streaming.state.incremental.recent

import java.util.concurrent.atomic.AtomicInteger

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.memory.SortedRuns

/**
 * The changes that led to a version, frozen. Shared by counted references; its memory goes with the last.
 *
 * @param version that version
 * @param keys    number of keys of the store at that version
 * @param memtable the changes; its table is there until they are in the index, and as long as a
 *     transaction reads it that began before
 * @param changes the changes of the memtable in key order, where somebody has sorted them; this one's from now on
 */
private[incremental] final class Generation(
    val version: VersionId,
    val keys: Long,
    val memtable: MemTable,
    changes: Option[SortedRuns] = None) {
  private val references = new AtomicInteger(1)

  /** Its place among all that came into the index of a store, oldest first. */
  private[recent] var sequence = 0L

  /** How many keys it has a record of. */
  val records: Long = memtable.size

  private var order: SortedRuns = changes.orNull

  /** Whether that has all records, those of rows too that were only read. */
  private var isWhole = false

  /** All its records in key order; made so at the first call. Any thread, while the memtable has its table. */
  def sorted: SortedRuns = synchronized {
    if (order == null) order = memtable.sortedRecords()
    else if (!isWhole) addUnchanged()
    isWhole = true
    order
  }

  private def addUnchanged(): Unit =
    try order.addUnsorted(memtable.foreachUnchanged, _ => true)
    catch {
      case e: Throwable => // it may have some of them
        forgetOrder()
        throw e
    }

  /** Frees what [[sorted]] gave; nobody reads it any more. */
  private[recent] def forgetOrder(): Unit = synchronized {
    if (order != null) order.free()
    order = null
  }

  /** Of its memtable and of the order. */
  def bytes: Long = memtable.bytes + synchronized(if (order == null) 0 else order.bytes)

  /** Whether another index has it too, or a transaction reads it. */
  private[recent] def isShared: Boolean = references.get > 1

  def retain(): Unit = references.incrementAndGet()

  def release(): Unit = if (references.decrementAndGet() == 0) {
    forgetOrder()
    memtable.free()
  }
}
