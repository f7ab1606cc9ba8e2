package org.apache.spark.sql.execution.streaming.state.incremental

/**
 * Goes through the records of places that no longer grow, superseded ones too, in order.
 *
 * @param starts where each place begins
 * @param ends   where the last record of each ends
 */
private[incremental] final class ArenaWalk(starts: Array[Long], ends: Array[Long]) {
  def this(arena: Arena) =
    this(Array.tabulate(arena.segmentCount)(arena.segmentStart), Array.tabulate(arena.segmentCount)(arena.segmentEnd))

  private var segment = -1
  private var at = 0L
  private var end = 0L

  /** The next records, as many as there is room for and are left; how many. */
  def next(records: Array[Long]): Int = {
    var n = 0
    while (n < records.length && {
      records(n) = next()
      records(n) != 0
    }) n += 1
    n
  }

  /** The next record, 0 when there is none. */
  def next(): Long = {
    while (at == end && segment + 1 < starts.length) {
      segment += 1
      at = starts(segment)
      end = ends(segment)
    }
    if (at == end) 0
    else {
      val record = at
      at += Record.size(record)
      record
    }
  }
}
