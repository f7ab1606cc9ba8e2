package org.apache.spark.sql.execution.streaming.state.incremental

/** Goes through the records of an arena that no longer grows, superseded ones too, in order. */
private[incremental] final class ArenaWalk(arena: Arena) {
  private var segment = -1
  private var at = 0L
  private var end = 0L

  /** The next record, 0 when there is none. */
  def next(): Long = {
    while (at == end && segment + 1 < arena.segmentCount) {
      segment += 1
      at = arena.segmentStart(segment)
      end = arena.segmentEnd(segment)
    }
    if (at == end) 0
    else {
      val record = at
      at += Record.size(record)
      record
    }
  }
}
