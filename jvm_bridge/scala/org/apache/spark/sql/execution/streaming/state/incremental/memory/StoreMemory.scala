package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.io.File
import java.util.concurrent.atomic.AtomicLong
import java.util.concurrent.ConcurrentHashMap

/**
 * The memory budget (option `memoryBudget`), in bytes, that all stores of an executor share. A store asks for memory by
 * `allocate`: what the budget has left, what other stores give back, or a file. Any number of threads. No lock is held
 * while stores are asked to give memory back.
 *
 * @param largestPieceBytes longest piece of memory that can be divided; a power of two, at least 64
 * @param largestFileBytes longest piece that lies in a file
 */
final class StoreMemory(
    initialBudgetBytes: Long,
    val largestPieceBytes: Long = StoreMemory.defaultPieceBytes,
    val largestFileBytes: Long = Int.MaxValue) {
  private val used = new AtomicLong
  @volatile private var budget = initialBudgetBytes
  private val stores = ConcurrentHashMap.newKeySet[StoreMemory.Reclaimable]()

  def budgetBytes: Long = budget

  /** Changes the budget. Memory above a smaller budget is given back when stores next ask for memory. */
  def setBudget(bytes: Long): Unit = budget = bytes

  def usedBytes: Long = used.get

  /** Takes bytes from the budget. Returns false, and takes nothing, if the budget has not that many left. */
  def reserve(bytes: Long): Boolean = {
    val after = used.addAndGet(bytes)
    if (after > budget) used.addAndGet(-bytes)
    after <= budget
  }

  /** Gives bytes back to the budget. */
  def release(bytes: Long): Unit = used.addAndGet(-bytes)

  /** Takes bytes even if the budget does not have them. */
  private[incremental] def take(bytes: Long): Unit = used.addAndGet(bytes)

  private[incremental] def register(store: StoreMemory.Reclaimable): Unit = stores.add(store)

  private[incremental] def unregister(store: StoreMemory.Reclaimable): Unit = stores.remove(store)

  /**
   * Allocates memory for a store: from the budget, if necessary after other stores have dropped rows that their bases
   * also hold, else from a file in the spill directory.
   *
   * @throws LocalDiskException if the disk is full or fails
   */
  private[incremental] def allocate(bytes: Long, spillDirectory: File): Segment =
    if (makeRoom(bytes)) Segment.reserved(bytes, this) else Segment.spill(bytes, spillDirectory, this)

  /** Takes bytes from the budget as [[reserve]] does, if necessary after stores have dropped such rows. */
  private[incremental] def makeRoom(bytes: Long): Boolean = reserve(bytes) || reclaim(bytes) && reserve(bytes)

  /**
   * Asks the stores, those with most to give first, to give back enough for this many bytes. Returns true if they did.
   */
  private def reclaim(bytes: Long): Boolean = {
    val missing = bytes + used.get - budget
    var givenBack = 0L
    if (bytes <= budget) {
      val candidates =
        stores.toArray(new Array[StoreMemory.Reclaimable](0)).map(s => (s.reclaimableBytes, s)).filter(_._1 > 0)
      candidates.sortBy(-_._1).foreach { case (_, store) =>
        if (givenBack < missing) givenBack += store.reclaim(missing - givenBack)
      }
    }
    givenBack >= missing
  }
}

object StoreMemory {
  /** The budget until the first store is opened and its query's option counts. */
  private val firstBudgetBytes: Long = 256L << 20

  /** The default of the longest piece: far below the 2 GiB that a mapping can have. */
  private val defaultPieceBytes: Long = 64L << 20

  /** The budget of this executor. */
  val shared: StoreMemory = new StoreMemory(firstBudgetBytes)

  /** A store that keeps rows in memory that it could read from its base. */
  private[incremental] trait Reclaimable {

    /** Returns about how many bytes the store could give back. Any thread, no lock. */
    def reclaimableBytes: Long

    /**
     * Gives back at least this many bytes if it can. Any thread that holds no store's lock.
     *
     * @return the bytes given back
     */
    def reclaim(bytes: Long): Long
  }
}

/**
 * Bytes that one store holds, by part.
 *
 * @param memtableBytes changes of open transactions
 * @param recentBytes rows of recent versions
 * @param indexBytes the index over them
 * @param baseBytes memory of the base
 * @param spilledBytes part of the above that lies in memory-mapped files, outside the budget
 */
final case class MemoryUse(
    memtableBytes: Long,
    recentBytes: Long,
    indexBytes: Long,
    baseBytes: Long,
    spilledBytes: Long)
