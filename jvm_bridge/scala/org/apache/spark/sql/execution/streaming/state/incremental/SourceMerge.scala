package org.apache.spark.sql.execution.streaming.state.incremental

/** Several sources, no two with the same key, as one in key order. One thread. */
private[incremental] final class SourceMerge(all: Seq[RecordSource]) {
  private val sources = all.filter(_.record != 0).sortWith((a, b) => Record.compare(a.record, b.record) < 0).toArray
  private var first = 0

  /** The record that it stands at, 0 after the last. */
  def record: Long = if (first == sources.length) 0 else sources(first).record

  def next(): Unit = {
    val source = sources(first)
    source.next()
    if (source.record == 0) first += 1 else sink(source)
  }

  /** Puts the first source, which has moved on, behind those that come before it now. */
  private def sink(source: RecordSource): Unit = {
    var i = first
    while (i + 1 < sources.length && Record.compare(sources(i + 1).record, source.record) < 0) {
      sources(i) = sources(i + 1)
      i += 1
    }
    sources(i) = source
  }
}
