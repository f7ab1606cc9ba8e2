package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import java.util.Arrays

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{OrderedRecords, Record}

/**
 * Keys with from <= key < until, none of which has a row at some version.
 *
 * @param removed how many removed keys scans passed to learn that, about
 */
private[transaction] final case class EmptyRange(from: Array[Byte], until: Array[Byte], removed: Long)

/**
 * Ranges of keys where one version has no rows, though removed keys still lie there, in memory or in the base: a scan
 * in key order that passed them tells, and later ones begin behind them. They are few: those with the most removed
 * keys. Any thread.
 *
 * @param version that version
 * @param fewest  how many removed keys one after the other are worth a range
 */
private[transaction] final class EmptyRanges private (val version: VersionId, fewest: Int, first: Array[EmptyRange]) {
  import EmptyRanges._

  /** Apart from each other, in the order of keys. The array does not change; another takes its place. */
  @volatile private var ranges = first

  def this(version: VersionId, fewest: Int) = this(version, fewest, EmptyRanges.none)

  /** Those that have keys with from <= key < until (null: to the end). */
  def overlapping(from: Array[Byte], until: Array[Byte]): Array[EmptyRange] =
    ranges.filter(range => !isOrdered(range.until, from) && (until == null || !isOrdered(until, range.from)))

  /** Whether this many removed keys one after the other are worth a range. */
  def isWorth(removed: Long): Boolean = removed >= fewest

  /** Tells that no key with from <= key < until has a row, and how many removed ones were passed there. */
  def add(from: Array[Byte], until: Array[Byte], removed: Long): Unit =
    if (!isOrdered(until, from)) synchronized {
      val (touching, apart) = ranges.partition(range => isOrdered(range.from, until) && isOrdered(from, range.until))
      val starts = (touching.map(_.from) :+ from).sortWith(isOrdered)
      val ends = (touching.map(_.until) :+ until).sortWith(isOrdered)
      ranges = few(apart :+ EmptyRange(starts.head, ends.last, removed + touching.map(_.removed).sum))
    }

  /**
   * Those of a version that was made of this one.
   *
   * @param putsIn the rows within a range that the new version has and this one may not have
   */
  def next(version: VersionId, putsIn: EmptyRange => OrderedRecords): EmptyRanges = {
    val left = ranges.flatMap(range => parts(range, putsIn(range)))
    new EmptyRanges(version, fewest, few(left.filter(range => !isOrdered(range.until, range.from))))
  }
}

private[transaction] object EmptyRanges {
  val none: Array[EmptyRange] = Array.empty[EmptyRange]

  /** How many ranges are kept of a version. */
  private val most = 16

  private def isOrdered(a: Array[Byte], b: Array[Byte]): Boolean = Arrays.compareUnsigned(a, b) <= 0

  /** What is left of a range between rows; where these are many, before the first ones and behind the last. */
  private def parts(range: EmptyRange, rows: OrderedRecords): Seq[EmptyRange] =
    if (rows.record == 0) Seq(range)
    else {
      val found = Seq.newBuilder[EmptyRange]
      var from = range.from
      var last = 0L
      var count = 0
      while (rows.record != 0) {
        last = rows.record
        if (count < most) {
          found += EmptyRange(from, Record.key(last), range.removed / 2)
          from = behindKey(last)
        }
        count += 1
        rows.next()
      }
      found += EmptyRange(behindKey(last), range.until, range.removed / 2)
      found.result()
    }

  /** The first key that may come after that of a record. */
  private def behindKey(record: Long): Array[Byte] = Arrays.copyOf(Record.key(record), Record.keyLength(record) + 1)

  private def few(ranges: Array[EmptyRange]): Array[EmptyRange] =
    ranges.sortBy(-_.removed).take(most).sortWith((a, b) => isOrdered(a.from, b.from))
}
