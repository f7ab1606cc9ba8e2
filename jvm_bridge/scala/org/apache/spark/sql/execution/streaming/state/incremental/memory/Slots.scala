package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.io.File

/**
 * A table of slots of equal size outside the heap, found by number. It lies in pieces of at most
 * [[StoreMemory.largestPieceBytes]] each, some in the budget and others in files: so it may be larger than a piece can
 * be. Any number of threads may read it.
 *
 * @param capacity number of slots
 * @param slotShift binary logarithm of the bytes of a slot
 */
private[incremental] final class Slots private (pieces: Array[Segment], val capacity: Long, slotShift: Int,
    pieceShift: Int) {
  private val starts = pieces.map(_.address)
  private val pieceMask = (1L << pieceShift) - 1

  def bytes: Long = capacity << slotShift
  def spilledBytes: Long = pieces.iterator.filter(_.spilled).map(_.bytes).sum

  /** Returns the address of a slot. */
  def address(i: Long): Long = starts((i >>> pieceShift).toInt) + ((i & pieceMask) << slotShift)

  /** Number of pieces, and the addresses at which each begins and ends: whole slots. */
  def pieceCount: Int = pieces.length
  def pieceStart(i: Int): Long = pieces(i).address
  def pieceEnd(i: Int): Long = pieces(i).address + pieces(i).bytes

  /** Sets all bytes to 0. */
  def clear(): Unit = pieces.foreach(piece => OffHeap.setMemory(piece.address, 0.toByte, piece.bytes))

  def free(): Unit = pieces.foreach(_.free())
}

private[incremental] object Slots {

  /** Allocates slots with any content. If it throws, for lack of memory, nothing is taken. */
  def allocate(capacity: Long, slotShift: Int, memory: StoreMemory, spillDirectory: File): Slots = {
    val pieceShift =
      java.lang.Long.numberOfTrailingZeros(java.lang.Long.highestOneBit(memory.largestPieceBytes)) - slotShift
    val pieceSlots = 1L << pieceShift
    val pieces = new Array[Segment](Math.toIntExact((capacity + pieceSlots - 1) / pieceSlots))
    try {
      for (i <- pieces.indices) {
        pieces(i) = memory.allocate(math.min(pieceSlots, capacity - i * pieceSlots) << slotShift, spillDirectory)
      }
      new Slots(pieces, capacity, slotShift, pieceShift)
    } catch {
      case e: Throwable =>
        pieces.foreach(piece => if (piece != null) piece.free())
        throw e
    }
  }

  /** Allocates slots full of zeros. */
  def zeros(capacity: Long, slotShift: Int, memory: StoreMemory, spillDirectory: File): Slots = {
    val slots = allocate(capacity, slotShift, memory, spillDirectory)
    slots.clear()
    slots
  }
}
