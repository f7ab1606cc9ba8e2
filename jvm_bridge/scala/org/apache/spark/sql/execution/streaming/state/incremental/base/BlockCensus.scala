package org.apache.spark.sql.execution.streaming.state.incremental.base

import scala.collection.mutable

/**
 * A count of the blocks of announced keys, some of which are missing, of files that come whole in the background. It
 * tells if the missing blocks are there sooner than the files: at first by what a request costs, and then by the time
 * that requests take. One thread.
 *
 * @param filesBytes the bytes of all files
 * @param step the number of keys that each key whose blocks are added stands for
 */
private[base] final class BlockCensus(filesBytes: Long, step: Int = 1) {
  import BlockCensus._

  private val lastOffsets = mutable.HashMap.empty[AnyRef, Long]
  private var missing = 0
  private var present = 0
  private var costBytes = 0L
  private var lastBlocks = 0
  private var lastNanos = 0L

  /** Number of the blocks that have come. */
  var fetched = 0

  /**
   * Adds a block; those of a file come in their order. A block may be added again.
   *
   * @param file the file, as an object
   */
  def add(file: AnyRef, offset: Long, length: Long, isMissing: Boolean): Unit = {
    val from = lastOffsets.getOrElse(file, -1L)
    if (offset != from) {
      lastOffsets(file) = offset
      if (isMissing) {
        val gap = if (from < 0) requestBytes else math.max(0, (offset - from) / step - length)
        missing += step
        costBytes += step * (length + math.min(gap, requestBytes))
      } else present += step
    }
  }

  /** Adds missing blocks that have come together, and the time that they took. */
  def addFetched(blocks: Int, nanos: Long): Unit = {
    fetched += blocks
    lastBlocks = blocks
    lastNanos = nanos
  }

  /** Bytes that are missing of all files, if as large a share of them is missing as of the blocks. */
  private def leftBytes: Double = filesBytes.toDouble * missing / math.max(1, missing + present)

  /**
   * Returns true if the missing blocks are there much sooner than the files.
   *
   * @param bytesPerSecond the speed of the files; None if it is not known
   */
  def isSooner(bytesPerSecond: Option[Long]): Boolean =
    missing > 1 && {
      val speed = bytesPerSecond.fold(usualSpeed)(_.toDouble)
      2 * costBytes / math.max(speed, usualSpeed) < leftBytes / speed
    }

  /** Returns true if the files come so slowly, or not at all, that their blocks are read by more than a few batches. */
  def areFilesSlow(bytesPerSecond: Option[Long]): Boolean = bytesPerSecond.exists(_ < usualSpeed)

  /** Returns true if the blocks that have not come yet are there sooner, by the time that the last ones took. */
  def isStillSooner(bytesPerSecond: Option[Long]): Boolean = lastBlocks == 0 || bytesPerSecond.forall(speed =>
    lastNanos / 1e9 * (missing - fetched) / lastBlocks < leftBytes / speed)
}

private object BlockCensus {

  /** Bytes of a file that come in the time that a request takes, as one of many. */
  private val requestBytes = 64L << 10

  /**
   * Bytes a second with which files come at least if nothing but the machine and the storage limits them. Where these are
   * slower or faster, requests are so, too.
   */
  private val usualSpeed = 128.0 * (1 << 20)
}
