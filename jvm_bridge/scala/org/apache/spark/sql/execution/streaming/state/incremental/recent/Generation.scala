package org.apache.spark.sql.execution.streaming.state.incremental.recent

import java.util.concurrent.atomic.AtomicInteger

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.memory.SortedRuns

/**
 * The frozen changes that led to a version, shared by counted references. The last release frees the memory.
 *
 * @param version the version
 * @param keys number of keys of the store at the version
 * @param memtable the changes; its table stays until the changes are in the index and the transactions that began
 *   before have ended
 * @param changes the changes of the memtable in key order, if they have been sorted; this generation owns them from now
 *   on
 */
private[incremental] final class Generation(
    val version: VersionId,
    val keys: Long,
    val memtable: MemTable,
    changes: Option[SortedRuns] = None) {
  private val references = new AtomicInteger(1)

  /** The position of this generation among all that came into the index of a store, oldest first. */
  private[recent] var sequence = 0L

  /** The number of keys that it has a record of. */
  val records: Long = memtable.size

  private var order: SortedRuns = changes.orNull

  /** True if the order has all records, those of rows that were only read, too. */
  private var isComplete = false

  /**
   * Returns all records in key order; sorts them at the first call. For any thread, while the memtable has its table.
   */
  def sorted: SortedRuns = synchronized {
    if (order == null) order = memtable.sortedRecords()
    else if (!isComplete) addUnchanged()
    isComplete = true
    order
  }

  private def addUnchanged(): Unit =
    try order.addUnsorted(memtable.foreachUnchanged, _ => true)
    catch {
      case e: Throwable => // the order may have some of them
        forgetOrder()
        throw e
    }

  /** Frees the order that [[sorted]] returned; nobody may read it any more. */
  private[recent] def forgetOrder(): Unit = synchronized {
    if (order != null) order.free()
    order = null
  }

  /** The bytes of the memtable and of the order. */
  def bytes: Long = memtable.bytes + synchronized(if (order == null) 0 else order.bytes)

  /** Returns true if another index has the generation, too, or a transaction reads it. */
  private[recent] def isShared: Boolean = references.get > 1

  def retain(): Unit = references.incrementAndGet()

  def release(): Unit = if (references.decrementAndGet() == 0) {
    forgetOrder()
    memtable.free()
  }
}
