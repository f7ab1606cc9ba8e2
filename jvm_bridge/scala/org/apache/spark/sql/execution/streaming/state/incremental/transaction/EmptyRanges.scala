package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import java.util.Arrays

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{OrderedRecords, Record}

/**
 * A range of keys, from <= key < until, in which some version has no row.
 *
 * @param removed approximate number of removed keys that scans passed to learn that
 */
private[transaction] final case class EmptyRange(from: Array[Byte], until: Array[Byte], removed: Long)

/**
 * The ranges of keys in which one version has no rows, though removed keys still lie there, in memory or in the base. A
 * scan in key order that passed such keys adds them, and later scans begin behind them. The ranges are largest: those with
 * the most removed keys. For any thread.
 *
 * @param version the version
 * @param fewest number of removed keys in a row that are worth a range
 */
private[transaction] final class EmptyRanges private (val version: VersionId, fewest: Int, first: Array[EmptyRange]) {
  import EmptyRanges._

  /** The ranges, disjoint and in the order of keys. An array is never changed; another takes its place. */
  @volatile private var ranges = first

  def this(version: VersionId, fewest: Int) = this(version, fewest, EmptyRanges.none)

  /** Returns the ranges that have keys with from <= key < until (null: to the end). */
  def overlapping(from: Array[Byte], until: Array[Byte]): Array[EmptyRange] =
    ranges.filter(range => !isOrdered(range.until, from) && (until == null || !isOrdered(until, range.from)))

  /** Returns true if this number of removed keys in a row is worth a range. */
  def isWorth(removed: Long): Boolean = removed >= fewest

  /**
   * Adds a range in which no key has a row.
   *
   * @param from the first key of the range
   * @param until the first key after the range
   * @param removed the number of removed keys that were passed there
   */
  def add(from: Array[Byte], until: Array[Byte], removed: Long): Unit =
    if (!isOrdered(until, from)) synchronized {
      val (touching, apart) = ranges.partition(range => isOrdered(range.from, until) && isOrdered(from, range.until))
      val starts = (touching.map(_.from) :+ from).sortWith(isOrdered)
      val ends = (touching.map(_.until) :+ until).sortWith(isOrdered)
      ranges = largest(apart :+ EmptyRange(starts.head, ends.last, removed + touching.map(_.removed).sum))
    }

  /**
   * Returns the ranges of a version that was made of this one.
   *
   * @param version the new version
   * @param putsIn returns the rows within a range that the new version has and this one may lack
   */
  def next(version: VersionId, putsIn: EmptyRange => OrderedRecords): EmptyRanges = {
    val remaining = ranges.flatMap(range => parts(range, putsIn(range)))
    new EmptyRanges(version, fewest, largest(remaining.filter(range => !isOrdered(range.until, range.from))))
  }
}

private[transaction] object EmptyRanges {
  val none: Array[EmptyRange] = Array.empty[EmptyRange]

  /** The largest number of ranges of a version. */
  private val maxRanges = 16

  private def isOrdered(a: Array[Byte], b: Array[Byte]): Boolean = Arrays.compareUnsigned(a, b) <= 0

  /** Returns the parts of a range between rows; of many rows, those before the first rows and behind the last. */
  private def parts(range: EmptyRange, rows: OrderedRecords): Seq[EmptyRange] =
    if (rows.record == 0) Seq(range)
    else {
      val found = Seq.newBuilder[EmptyRange]
      var from = range.from
      var last = 0L
      var count = 0
      while (rows.record != 0) {
        last = rows.record
        if (count < maxRanges) {
          found += EmptyRange(from, Record.key(last), range.removed / 2)
          from = behindKey(last)
        }
        count += 1
        rows.next()
      }
      found += EmptyRange(behindKey(last), range.until, range.removed / 2)
      found.result()
    }

  /** Returns the first key that may come after the key of a record. */
  private def behindKey(record: Long): Array[Byte] = Arrays.copyOf(Record.key(record), Record.keyLength(record) + 1)

  private def largest(ranges: Array[EmptyRange]): Array[EmptyRange] =
    ranges.sortBy(-_.removed).take(maxRanges).sortWith((a, b) => isOrdered(a.from, b.from))
}
