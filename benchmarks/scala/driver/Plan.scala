package statestore.benchmark

import scala.collection.mutable

import org.apache.commons.math3.distribution.ZipfDistribution
import org.apache.commons.math3.random.Well19937c

/**
 * A batch of a store: get then put of each of `touched` in order (only get if `readOnly`), then remove of each of
 * `removed`.
 *
 * @param expected sum of the versions that the gets return, each weighted by its index in the batch
 */
final case class StorePlan(
    touched: Array[Long],
    removed: Array[Long],
    version: Int,
    readOnly: Boolean,
    expected: Long)

/** A planner of batches by access pattern, which also applies them to the model. Deterministic for a seed. */
final class Planner(model: StoreModel, stores: Int, seed: Long) {
  private val random = new Well19937c(seed)
  private var zipf: ZipfDistribution = _

  /** Returns the plans of a batch, one for each store. A key that is drawn twice is read and written twice. */
  def batch(pattern: String, size: Int, version: Int): Array[StorePlan] = {
    val removed = pattern match {
      case "sliding" => Array.tabulate(math.min(size, model.size.toInt))(model.low + _)
      case _ => Array.emptyLongArray
    }
    split(draw(pattern, size), removed, version, readOnly = pattern == "read-only")
  }

  /** Returns plans that put new key numbers without a read before. */
  def load(from: Long, until: Long, version: Int): Array[StorePlan] = {
    val plans = split((from until until).toArray, Array.emptyLongArray, version, readOnly = false)
    plans
  }

  private def draw(pattern: String, size: Int): Array[Long] = {
    val span = model.high - model.low
    pattern match {
      case "uniform" | "read-only" => Array.fill(size)(model.low + uniform(span))
      case "append" | "sliding" => Array.tabulate(size)(model.high + _)
      case "zipf" =>
        if (zipf == null || zipf.getNumberOfElements != span)
          zipf = new ZipfDistribution(random, span.toInt, 1.0)
        Array.fill(size)(model.low + (zipf.sample().toLong * 2147483647L) % span)
      case other => throw new IllegalArgumentException(
          s"unknown access pattern '$other': use uniform, zipf, append, sliding or read-only")
    }
  }

  def uniform(bound: Long): Long = (random.nextDouble() * bound).toLong

  /** Returns key numbers by store, in their order. */
  private def byStore(indices: Array[Long]): Array[Array[Long]] = {
    val parts = Array.fill(stores)(Array.newBuilder[Long])
    indices.foreach(index => parts((index % stores).toInt) += index)
    parts.map(_.result())
  }

  private def split(
      touched: Array[Long], removed: Array[Long], version: Int, readOnly: Boolean): Array[StorePlan] = {
    val ofStore = byStore(touched)
    val plans = Array.tabulate(stores) { store =>
      val mine = ofStore(store)
      var expected = 0L
      val written = mutable.LongMap.empty[Unit]
      var place = 0
      while (place < mine.length) {
        val index = mine(place)
        val seen = if (!readOnly && written.contains(index)) version else model.versionOf(index)
        expected += seen.toLong * (2L * place + 1)
        if (!readOnly) written.update(index, ())
        place += 1
      }
      StorePlan(mine, removed.filter(_ % stores == store), version, readOnly, expected)
    }
    if (!readOnly) touched.foreach(model.put(_, version))
    removed.foreach(model.remove)
    if (removed.nonEmpty) model.low = removed.last + 1
    plans
  }
}
