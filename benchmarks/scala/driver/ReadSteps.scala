package statestore.benchmark

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.{StateStore, UnsafeRowPair}
import org.apache.spark.unsafe.Platform

/** Scans of one subject, each checked against the model. The store is open for writing, as in a batch. */
final class ReadSteps(shape: Shape, model: StoreModel, planner: Planner) {

  /**
   * Measures a full scan, as of time-outs and of the eviction by watermark.
   *
   * @param uncommitted number of keys that the open batch rewrites, with their present values, before the scan
   */
  def scan(subject: Subject, uncommitted: Int): Seq[(String, Any)] = {
    val plan = rewrite(uncommitted)
    inStores(subject) { store =>
      plan.foreach(rows => rows.indices.foreach(place => store.put(rows(place)._1, rows(place)._2)))
      val started = System.nanoTime()
      var count = 0L
      var sum = 0L
      val rows = store.iterator()
      while (rows.hasNext) {
        val pair = rows.next()
        sum += StoreModel.term(shape.keys.indexOf(pair.key), pair.value.getLong(0))
        count += 1
      }
      rows.close()
      (System.nanoTime() - started, count, sum)
    } match {
      case results =>
        check(subject, results.map(_._2).sum == model.size && results.map(_._3).sum == model.checksum, "scan")
        Seq("wall_ms" -> results.map(_._1).sum / 1e6, "rows" -> results.map(_._2).sum)
    }
  }

  /** Measures a prefix scan for each group, as of joins and session windows. */
  def prefix(subject: Subject, groups: Array[Long]): Seq[(String, Any)] = {
    val layout = KeyLayout.Prefix
    val buffer = new Array[Byte](layout.prefixBytes * groups.length)
    groups.indices.foreach(place => layout.writePrefix(buffer, place * layout.prefixBytes, groups(place)))
    val row = new UnsafeRow(1)
    val Seq((nanos, count, sum)) = inStores(subject) { store =>
      val started = System.nanoTime()
      var count = 0L
      var sum = 0L
      groups.indices.foreach { place =>
        row.pointTo(buffer,
          Platform.BYTE_ARRAY_OFFSET + place.toLong * layout.prefixBytes, layout.prefixBytes)
        val rows = store.prefixScan(row)
        while (rows.hasNext) {
          val pair = rows.next()
          sum += StoreModel.term(layout.indexOf(pair.key), pair.value.getLong(0))
          count += 1
        }
        rows.close()
      }
      (System.nanoTime() - started, count, sum)
    }
    val wanted = groups.iterator
      .flatMap(group => (0L until layout.GroupSize).map(group * layout.GroupSize + _))
      .filter(model.versionOf(_) != 0).map(index => StoreModel.term(index, model.versionOf(index))).sum
    check(subject, sum == wanted, "prefix scan")
    Seq("wall_ms" -> nanos / 1e6, "scans" -> groups.length, "rows" -> count)
  }

  /** Measures a read of the first rows in key order of a range-encoded store, as of timers that are due. */
  def first(subject: Subject, wanted: Int): Seq[(String, Any)] = {
    val results = inStores(subject) { store =>
      val started = System.nanoTime()
      val rows = store.iterator()
      var count = 0
      var ordered = true
      var last = Long.MinValue
      while (count < wanted && rows.hasNext) {
        val index = shape.keys.indexOf(rows.next().key)
        ordered &= index > last
        last = index
        count += 1
      }
      rows.close()
      (System.nanoTime() - started, count, ordered && last == model.low + wanted - 1)
    }
    check(subject, results.forall(_._3), "first rows in order")
    Seq("wall_ms" -> results.map(_._1).sum / 1e6, "rows" -> results.map(_._2).sum)
  }

  /** Compares every byte of every row with the model. The time is not for comparisons. */
  def verify(subject: Subject): Seq[(String, Any)] = {
    val counts = inStores(subject) { store =>
      val rows = store.iterator()
      var count = 0L
      while (rows.hasNext) {
        checkPair(subject, rows.next())
        count += 1
      }
      rows.close()
      count
    }
    check(subject, counts.sum == model.size, s"${counts.sum} rows instead of ${model.size}")
    Seq("rows" -> counts.sum, "checksum" -> model.checksum.toString)
  }

  private def checkPair(subject: Subject, pair: UnsafeRowPair): Unit = {
    val index = shape.keys.indexOf(pair.key)
    val version = if (index < 0) 0 else model.versionOf(index)
    check(subject, version != 0 && shape.values.matches(pair.value, index, version),
      s"row of key number $index")
  }

  private def rewrite(count: Int): Option[IndexedSeq[(UnsafeRow, UnsafeRow)]] = if (count == 0) None
  else
    Some {
      val indices = Array.fill(count)(model.low + planner.uniform(model.high - model.low))
        .filter(model.versionOf(_) != 0).distinct
      indices.toIndexedSeq.map { index =>
        val plan = StorePlan(Array(index), Array.emptyLongArray, model.versionOf(index), readOnly = false, 0L)
        val rows = new BatchRows(plan, shape.keys, shape.values)
        (rows.key(0), rows.value(0))
      }
    }

  private def inStores[T](subject: Subject)(work: StateStore => T): Seq[T] = subject.stores.map { handle =>
    val store = handle.open()
    val result = work(store)
    handle.commit(store) // not abort, after which some providers load the state again
    result
  }

  private def check(subject: Subject, right: Boolean, message: String): Unit =
    if (!right) throw new IllegalStateException(s"content differs from the model in ${subject.name}: $message")
}
