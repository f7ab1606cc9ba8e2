package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.io.File
import java.util.concurrent.atomic.AtomicLong
import java.util.concurrent.ConcurrentHashMap

/**
 * The memory budget that all stores of an executor share, in bytes. Thread-safe; takes no lock of its own
 * while it asks stores to give memory back.
 *
 * @param largestPieceBytes of what can be divided nothing takes more in one piece; a power of two, at least 64
 * @param largestFileBytes  no piece that lies in a file may be longer
 */
final class StoreMemory(
    initialBudgetBytes: Long,
    val largestPieceBytes: Long = StoreMemory.defaultPieceBytes,
    val largestFileBytes: Long = Int.MaxValue) {
  private val used = new AtomicLong
  @volatile private var budget = initialBudgetBytes
  private val stores = ConcurrentHashMap.newKeySet[StoreMemory.Reclaimable]()

  def budgetBytes: Long = budget

  /** Changes the budget; what is above a smaller one goes as stores next ask for memory. */
  def setBudget(bytes: Long): Unit = budget = bytes

  def usedBytes: Long = used.get

  /** Takes bytes from the budget. Returns false, and takes nothing, if it does not have that many left. */
  def reserve(bytes: Long): Boolean = {
    val after = used.addAndGet(bytes)
    if (after > budget) used.addAndGet(-bytes)
    after <= budget
  }

  def release(bytes: Long): Unit = used.addAndGet(-bytes)

  /** Takes bytes even if the budget does not have them. */
  private[incremental] def take(bytes: Long): Unit = used.addAndGet(bytes)

  private[incremental] def register(store: StoreMemory.Reclaimable): Unit = stores.add(store)

  private[incremental] def unregister(store: StoreMemory.Reclaimable): Unit = stores.remove(store)

  /**
   * Memory for a store: from the budget, if need be after the stores have dropped rows that their bases hold
   * too, else from a file in the spill directory.
   */
  private[incremental] def allocate(bytes: Long, spillDirectory: File): Segment =
    if (reserve(bytes) || reclaim(bytes) && reserve(bytes)) Segment.reserved(bytes, this)
    else Segment.spill(bytes, spillDirectory, this)

  /**
   * Asks the stores, the one with most to give first, to give back so much that the bytes fit; whether they
   * do.
   */
  private def reclaim(bytes: Long): Boolean = {
    val wanted = bytes + used.get - budget
    var got = 0L
    if (bytes <= budget) {
      val candidates = stores.toArray(new Array[StoreMemory.Reclaimable](0)).map(s => (s.reclaimableBytes, s)).filter(_._1 > 0)
      candidates.sortBy(-_._1).foreach { case (_, store) => if (got < wanted) got += store.reclaim(wanted - got) }
    }
    got >= wanted
  }
}

object StoreMemory {
  /** Until the first store is opened and its query's option counts. */
  private val firstBudgetBytes: Long = 256L << 20

  /** Far below the 2 GiB that a mapping can have. */
  private val defaultPieceBytes: Long = 64L << 20

  /** The budget of this executor. */
  val shared: StoreMemory = new StoreMemory(firstBudgetBytes)

  /** A store that keeps rows in memory that it could as well read from its base. */
  private[incremental] trait Reclaimable {

    /** About how many bytes it could give back; any thread, no lock. */
    def reclaimableBytes: Long

    /** Gives back at least this many bytes if it can; how many. Any thread that holds no store's lock. */
    def reclaim(bytes: Long): Long
  }
}

/**
 * Bytes that one store holds, by part.
 *
 * @param memtableBytes changes of open transactions
 * @param recentBytes  rows of recent versions
 * @param indexBytes   the index over them
 * @param baseBytes    what the base keeps in memory
 * @param spilledBytes part of the above that lies in memory-mapped files, outside the budget
 */
final case class MemoryUse(
    memtableBytes: Long,
    recentBytes: Long,
    indexBytes: Long,
    baseBytes: Long,
    spilledBytes: Long)
