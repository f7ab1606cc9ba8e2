package org.apache.spark.sql.execution.streaming.state.incremental.rows

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.incremental.transaction.Scan
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair

/**
 * The decoded rows of a scan, with one pair object for all of them, as Spark's own stores do. It closes the scan at its
 * end. One thread at a time, which need not be the thread that began the scan.
 *
 * @param entries rows whose keys lack the id of the family
 * @param begun a codec of the family
 * @param check called with each pair
 */
private[incremental] final class RowIterator(
    entries: Scan, begun: RowCodec, codecs: ThreadCodecs, check: UnsafeRowPair => Unit)
    extends Iterator[UnsafeRowPair] {
  private val pair = new UnsafeRowPair
  private var state = RowIterator.Unknown

  override def hasNext: Boolean = {
    if (state == RowIterator.Unknown) {
      state = if (entries.advance()) RowIterator.Ready else RowIterator.Ended
      if (state == RowIterator.Ended) entries.close()
    }
    state == RowIterator.Ready
  }

  override def next(): UnsafeRowPair = {
    if (!hasNext) throw new NoSuchElementException("the scan has no more rows")
    state = RowIterator.Unknown
    val codec = codecs.own(begun)
    pair.withRows(codec.decodeKey(entries), codec.decodeValue(entries))
    check(pair)
    pair
  }
}

private object RowIterator {
  val Unknown = 0
  val Ready = 1
  val Ended = 2
}

/** A [[RowIterator]] for families whose keys have many values: it returns a pair for each value. */
private[incremental] final class ValuesIterator(
    entries: Scan, begun: RowCodec, codecs: ThreadCodecs, check: UnsafeRowPair => Unit)
    extends Iterator[UnsafeRowPair] {
  private val pair = new UnsafeRowPair
  private var key: UnsafeRow = _
  private var values: Iterator[UnsafeRow] = Iterator.empty
  private var ended = false

  override def hasNext: Boolean = {
    while (!values.hasNext && !ended) {
      if (entries.advance()) {
        val codec = codecs.own(begun)
        key = codec.decodeKey(entries)
        values = codec.decodeValues(entries.value)
      } else {
        ended = true
        entries.close()
      }
    }
    values.hasNext
  }

  override def next(): UnsafeRowPair = {
    if (!hasNext) throw new NoSuchElementException("the scan has no more rows")
    pair.withRows(key, values.next())
    check(pair)
    pair
  }
}
