package org.apache.spark.sql.execution.streaming.state.incremental.memory

/** Records in key order, one at a time. */
private[incremental] trait OrderedRecords {
  /** The record that it stands at, 0 after the last. */
  def record: Long

  def next(): Unit

  /** Gives the records that are left to a function. */
  final def foreach(use: Long => Unit): Unit = while (record != 0) {
    use(record)
    next()
  }

  /** How many records it left out so far, those of removed keys that it shows not counted. */
  def passed: Long = 0

  /** Whether it takes memory outside the heap, until [[free]]; nobody moves it any more then. */
  def isOffHeap: Boolean = false

  def free(): Unit = ()
}

private[incremental] object OrderedRecords {
  val none: OrderedRecords = new OrderedRecords {
    override def record: Long = 0
    override def next(): Unit = ()
  }
}

/** Several sources, no two with the same key, as one in key order. One thread. */
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

  /** Puts the first source, which has moved on, behind those that come before it now. */
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
 * Records in key order, read from a sorted place as they are asked for. One thread.
 *
 * @param at     the record at a position
 * @param from   the first position
 * @param end    the position after the last
 * @param until  records from this key on are left out (null: none)
 * @param wanted records of which this is false are left out
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
