package statestore.benchmark.processors

import org.apache.spark.sql.{DataFrame, Encoders}
import org.apache.spark.sql.streaming.{
  ExpiredTimerInfo, ListState, MapState, OutputMode, StatefulProcessor, TimeMode, TimerValues, TTLConfig, ValueState
}

case class Purchase(key: String, field: Long, n: Long)

case class Customer(key: String, total: Long, entries: Long, fields: Long)

/** A query with `transformWithState` in Scala: a value, a list, a map and a timer for each key. */
object Customers {
  /**
   * The time after which a timer expires: longer than the benchmark, so that its output does not depend on its speed.
   */
  val SilenceMs = 24L * 3600 * 1000

  def followed(purchases: DataFrame): DataFrame = {
    val session = purchases.sparkSession
    import session.implicits._
    purchases.as[Purchase].groupByKey(_.key)
      .transformWithState(new Customers, TimeMode.ProcessingTime(), OutputMode.Update()).toDF()
  }
}

class Customers extends StatefulProcessor[String, Purchase, Customer] {
  @transient private var total: ValueState[Long] = _
  @transient private var entries: ListState[Long] = _
  @transient private var fields: MapState[Long, Long] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit = {
    total = getHandle.getValueState[Long]("total", Encoders.scalaLong, TTLConfig.NONE)
    entries = getHandle.getListState[Long]("entries", Encoders.scalaLong, TTLConfig.NONE)
    fields = getHandle.getMapState[Long, Long]("fields", Encoders.scalaLong, Encoders.scalaLong, TTLConfig.NONE)
  }

  override def handleInputRows(
      key: String, rows: Iterator[Purchase], timerValues: TimerValues): Iterator[Customer] = {
    val purchases = rows.toSeq
    total.update((if (total.exists()) total.get() else 0L) + purchases.map(_.n).sum)
    purchases.foreach { purchase =>
      entries.appendValue(purchase.n)
      fields.updateValue(purchase.field,
        (if (fields.containsKey(purchase.field)) fields.getValue(purchase.field) else 0L) + purchase.n)
    }
    getHandle.listTimers().toSeq.foreach(getHandle.deleteTimer)
    getHandle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + Customers.SilenceMs)
    Iterator.single(Customer(key, total.get(), entries.get().size, fields.iterator().map(_._2).sum))
  }

  override def handleExpiredTimer(
      key: String, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo): Iterator[Customer] = {
    total.clear()
    entries.clear()
    fields.clear()
    Iterator.empty
  }
}
