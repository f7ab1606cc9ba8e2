package org.apache.spark.sql.execution.streaming.state.incremental

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair

/** As RowIterator, for families where a key has many values: a pair for each of them. */
private[incremental] final class ValuesIterator(entries: Scan, codec: RowCodec, check: UnsafeRowPair => Unit)
  extends Iterator[UnsafeRowPair] {
  private val pair = new UnsafeRowPair
  private var key: UnsafeRow = _
  private var values: Iterator[UnsafeRow] = Iterator.empty
  private var ended = false

  override def hasNext: Boolean = {
    while (!values.hasNext && !ended) {
      if (entries.advance()) {
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
