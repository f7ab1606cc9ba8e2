package statestore.queries

import org.apache.spark.sql.{DataFrame, Encoders}
import org.apache.spark.sql.streaming.{
  ExpiredTimerInfo, ListState, MapState, OutputMode, StatefulProcessorWithInitialState, TimeMode, TimerValues,
  TTLConfig, ValueState
}

/** `transformWithState` by key, with the rule of [[GroupsWithState]], and an initial state for one key. */
object ScalaProcessors {

  def followed(events: DataFrame, delay: String, silenceMs: Int): DataFrame = {
    val session = events.sparkSession
    import session.implicits._
    val initial = session.createDataset(Seq("k01" -> Counts(1000, 0))).groupByKey(_._1).mapValues(_._2)
    events.withWatermark("ts", delay).select("key", "ts", "value", "id").as[Event].groupByKey(_.key)
      .transformWithState(new Follower(silenceMs), TimeMode.EventTime(), OutputMode.Append(), initial)
      .toDF()
  }
}

/** Fails where the list and the map do not say what the value says. */
class Follower(silenceMs: Int) extends StatefulProcessorWithInitialState[String, Event, Result, Counts] {
  @transient private var counts: ValueState[Counts] = _
  @transient private var ids: ListState[Long] = _
  @transient private var byValue: MapState[Long, Long] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit = {
    counts = getHandle.getValueState[Counts]("counts", Encoders.product[Counts], TTLConfig.NONE)
    ids = getHandle.getListState[Long]("ids", Encoders.scalaLong, TTLConfig.NONE)
    byValue = getHandle.getMapState[Long, Long]("byValue", Encoders.scalaLong, Encoders.scalaLong, TTLConfig.NONE)
  }

  override def handleInitialState(key: String, initial: Counts, timerValues: TimerValues): Unit = {
    counts.update(initial)
    ids.put((1L to initial.n).map(-_).toArray)
    byValue.updateValue(0L, initial.n)
  }

  override def handleInputRows(
      key: String, rows: Iterator[Event], timerValues: TimerValues): Iterator[Result] = {
    val group = rows.toSeq
    val before = current()
    val now = Counts(before.n + group.size, before.total + group.map(_.value).sum)
    getHandle.listTimers().toSeq.foreach(getHandle.deleteTimer)
    if (group.exists(_.value == 0)) {
      clear()
      Iterator.single(Result(key, "forgotten", now.n, now.total))
    } else {
      counts.update(now)
      ids.appendList(group.map(_.id).toArray)
      group.groupBy(_.value).foreach { case (value, some) =>
        byValue.updateValue(value, (if (byValue.containsKey(value)) byValue.getValue(value) else 0L) + some.size)
      }
      getHandle.registerTimer(group.map(_.ts.getTime).max + silenceMs)
      Iterator.single(Result(key, "seen", now.n, now.total))
    }
  }

  override def handleExpiredTimer(
      key: String, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo): Iterator[Result] = {
    val last = current()
    clear()
    Iterator.single(Result(key, "closed", last.n, last.total))
  }

  private def current(): Counts = {
    val told = if (counts.exists()) counts.get() else Counts(0, 0)
    val listed = ids.get().toSeq
    val counted = byValue.iterator().toSeq
    require(listed.size == told.n && listed.distinct.size == told.n && counted.map(_._2).sum == told.n,
      s"$told, in the list $listed, in the map $counted")
    require(counted.map { case (value, n) => value * n }.sum == told.total, s"$told, in the map $counted")
    told
  }

  private def clear(): Unit = {
    counts.clear()
    ids.clear()
    byValue.clear()
  }
}
