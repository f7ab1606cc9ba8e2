package org.apache.spark.sql.execution.streaming.state.incremental

/**
 * Records in key order, read from a sorted place as they are asked for. One thread.
 *
 * @param at     the record at a position
 * @param from   the first position
 * @param end    the position after the last
 * @param until  records from this key on are left out (null: none)
 * @param wanted records of which this is false are left out
 */
private[incremental] final class RecordSource(
    at: Int => Long,
    from: Int,
    end: Int,
    until: Array[Byte],
    wanted: Long => Boolean) {
  private var i = from
  private var head = 0L

  next()

  /** The record that it stands at, 0 after the last. */
  def record: Long = head

  def next(): Unit = {
    head = 0
    while (head == 0 && i < end) {
      val record = at(i)
      i += 1
      if (until != null && Bytes.compare(until, Record.keyAddress(record), Record.keyLength(record)) <= 0) i = end
      else if (wanted(record)) head = record
    }
  }

  /** The rest of its records. */
  def foreach(use: Long => Unit): Unit = while (head != 0) {
    use(head)
    next()
  }
}
