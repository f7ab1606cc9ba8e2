package org.apache.spark.sql.execution.streaming.state.incremental

import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair

/**
 * Rows of a scan, decoded; one pair object for all of them, as Spark's own stores have it. Closes the scan at
 * its end.
 *
 * @param entries rows whose keys are without the id of the family
 * @param check is shown each pair
 */
private[incremental] final class RowIterator(entries: Scan, codec: RowCodec, check: UnsafeRowPair => Unit)
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
