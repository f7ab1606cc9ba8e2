package org.apache.spark.sql.execution.streaming.state.incremental.memory

/** Records in key order, shown one at a time. */
private[incremental] trait OrderedRecords {
  /** Address of the current record; 0 after the last. */
  def record: Long

  def next(): Unit

  /** Calls a function with each record that is left. */
  final def foreach(use: Long => Unit): Unit = while (record != 0) {
    use(record)
    next()
  }

  /** Number of records that were left out so far. A record of a removed key is shown, and does not count. */
  def passed: Long = 0

  /** True if the records take memory outside the heap until [[free]], after which [[next]] is not called. */
  def isOffHeap: Boolean = false

  def free(): Unit = ()
}

private[incremental] object OrderedRecords {
  val none: OrderedRecords = new OrderedRecords {
    override def record: Long = 0
    override def next(): Unit = ()
  }
}

/** Records of several sources in key order; no two sources have the same key. Used by one thread. */
private[incremental] final class MergedRecords(all: Seq[SortedRecords]) extends OrderedRecords {
  private val sources = all.filter(_.record != 0).sortWith((a, b) => Record.compare(a.record, b.record) < 0).toArray
  private var first = 0
  private var passedBySources = all.iterator.map(_.passed).sum

  override def passed: Long = passedBySources

  override def record: Long = if (first == sources.length) 0 else sources(first).record

  override def next(): Unit = {
    val source = sources(first)
    val before = source.passed
    source.next()
    passedBySources += source.passed - before
    if (source.record == 0) first += 1 else sink(source)
  }

  /** Moves the first source, whose record has changed, behind the sources whose records precede it. */
  private def sink(source: SortedRecords): Unit = {
    var i = first
    while (i + 1 < sources.length && Record.compare(sources(i + 1).record, source.record) < 0) {
      sources(i) = sources(i + 1)
      i += 1
    }
    sources(i) = source
  }
}

/**
 * Records in key order, read from a sorted place on demand. Used by one thread.
 *
 * @param at     returns the record at a position
 * @param from   the first position
 * @param end    the position after the last
 * @param until  first key whose record is left out; null if all are shown
 * @param wanted returns false for a record that is left out
 */
private[incremental] final class SortedRecords(
    at: Int => Long,
    from: Int,
    end: Int,
    until: Array[Byte],
    wanted: Long => Boolean)
    extends OrderedRecords {
  private var i = from
  private var head = 0L
  private var leftOut = 0L

  next()

  override def passed: Long = leftOut

  override def record: Long = head

  override def next(): Unit = {
    head = 0
    while (head == 0 && i < end) {
      val record = at(i)
      i += 1
      if (until != null && Bytes.compare(until, Record.keyAddress(record), Record.keyLength(record)) <= 0) i = end
      else if (wanted(record)) head = record
      else leftOut += 1
    }
  }
}
