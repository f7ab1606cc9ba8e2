package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{OffHeap, OrderedRecords, RecordSpool}
import org.apache.spark.sql.execution.streaming.state.incremental.recent.MemTable

/**
 * The memory of a transaction's open scans; freed with the transaction at the latest. Within the transaction's calls.
 */
private[transaction] final class ScanMemory(memtable: MemTable) {
  private val spools = new java.util.HashSet[RecordSpool]
  private val orders = new java.util.HashSet[OrderedRecords]

  /** The buffer that scans copy rows to. */
  lazy val buffer = new EntryBuffer

  /** Returns a new list of records for a scan. */
  def newSpool(): RecordSpool = {
    val spool = memtable.newSpool()
    spools.add(spool)
    spool
  }

  def free(spool: RecordSpool): Unit = if (spools.remove(spool)) spool.free()

  /** Keeps records that a scan goes through in key order, and returns them. */
  def keep(order: OrderedRecords): OrderedRecords = {
    if (order.isOffHeap) orders.add(order)
    order
  }

  def free(order: OrderedRecords): Unit = if (order.isOffHeap && orders.remove(order)) order.free()

  /** Frees all memory, once, after the last call. */
  def freeAll(): Unit = {
    spools.forEach(_.free())
    orders.forEach(_.free())
  }
}

/**
 * A buffer of copies of rows on the heap, many in one array. A copy stays as it is: a full array is left to those who
 * still use it. Arrays grow with use, so that a scan of five rows takes little memory. For one thread.
 */
private[transaction] final class EntryBuffer {
  private var chunk = new Array[Byte](EntryBuffer.smallest)
  private var end = 0

  /** The array of the last copy. */
  def bytes: Array[Byte] = chunk

  /**
   * Copies bytes from outside the heap.
   *
   * @return the position of the copy in [[bytes]], until the next copy
   */
  def copy(address: Long, length: Int): Int = {
    val at = take(length)
    OffHeap.copyMemory(null, address, chunk, OffHeap.arrayBase + at, length)
    at
  }

  /** Copies two pieces, one behind the other, like the other `copy`. */
  def copy(address: Long, length: Int, address2: Long, length2: Int): Int = {
    val at = take(Math.addExact(length, length2))
    OffHeap.copyMemory(null, address, chunk, OffHeap.arrayBase + at, length)
    OffHeap.copyMemory(null, address2, chunk, OffHeap.arrayBase + at + length, length2)
    at
  }

  private def take(length: Int): Int = {
    if (length > chunk.length - end) {
      val standard = math.min(chunk.length * 2L, EntryBuffer.largest)
      chunk = new Array[Byte](math.max(length, standard.toInt))
      end = 0
    }
    end += length
    end - length
  }
}

private[transaction] object EntryBuffer {
  private val smallest = 1 << 10
  private val largest = 32L << 10
}
