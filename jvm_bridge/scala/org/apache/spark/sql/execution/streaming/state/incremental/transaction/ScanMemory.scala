package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{OrderedRecords, RecordSpool}
import org.apache.spark.sql.execution.streaming.state.incremental.recent.MemTable

/** What the scans of a transaction that are open take; freed with the transaction at the latest. Within its calls. */
private[transaction] final class ScanMemory(memtable: MemTable) {
  private val spools = new java.util.HashSet[RecordSpool]
  private val orders = new java.util.HashSet[OrderedRecords]

  /** Where scans copy rows to. */
  lazy val buffer = new EntryBuffer

  /** A list of records for a scan. */
  def newSpool(): RecordSpool = {
    val spool = memtable.newSpool()
    spools.add(spool)
    spool
  }

  def free(spool: RecordSpool): Unit = if (spools.remove(spool)) spool.free()

  /** The same of records that a scan goes through in key order. */
  def keep(order: OrderedRecords): OrderedRecords = {
    if (order.isOffHeap) orders.add(order)
    order
  }

  def free(order: OrderedRecords): Unit = if (order.isOffHeap && orders.remove(order)) order.free()

  /** Frees all; once, after the last call. */
  def freeAll(): Unit = {
    spools.forEach(_.free())
    orders.forEach(_.free())
  }
}
