package statestore.queries

import java.sql.Timestamp

import org.apache.spark.sql.{DataFrame, Dataset}
import org.apache.spark.sql.streaming.{GroupState, GroupStateTimeout, OutputMode}

case class Event(key: String, ts: Timestamp, value: Long, id: Long)

case class Counts(n: Long, total: Long)

case class Result(key: String, kind: String, n: Long, total: Long)

/**
 * (flat)MapGroupsWithState by key: count and add up the values, forget a key at a value of 0, close it when
 * it has been silent. Called from Python through the gateway, hence data frames in and out.
 */
object GroupsWithState {

  def flatMapWithoutTimeout(events: DataFrame): DataFrame =
    flatMap(typed(events), OutputMode.Update(), GroupStateTimeout.NoTimeout)((_, _) => ())

  def flatMapWithEventTime(events: DataFrame, delay: String, silenceMs: Int): DataFrame =
    flatMap(
      typed(events.withWatermark("ts", delay)), OutputMode.Append(), GroupStateTimeout.EventTimeTimeout) {
      (state, group) => state.setTimeoutTimestamp(group.map(_.ts.getTime).max + silenceMs)
    }

  def flatMapWithProcessingTime(events: DataFrame, silenceMs: Int): DataFrame =
    flatMap(typed(events), OutputMode.Update(), GroupStateTimeout.ProcessingTimeTimeout) {
      (state, _) => state.setTimeoutDuration(silenceMs.toLong)
    }

  /** Returns a row for each key of a batch, with an initial state for one key. */
  def map(events: DataFrame): DataFrame = {
    val session = events.sparkSession
    import session.implicits._
    val initial = session.createDataset(Seq("k01" -> Counts(1000, 0))).groupByKey(_._1).mapValues(_._2)
    typed(events).groupByKey(_.key).mapGroupsWithState(GroupStateTimeout.NoTimeout, initial) {
      (key: String, events: Iterator[Event], state: GroupState[Counts]) =>
        val counts = add(state, events.toSeq)
        state.update(counts)
        Result(key, "seen", counts.n, counts.total)
    }.toDF()
  }

  private def flatMap(events: Dataset[Event], mode: OutputMode, timeout: GroupStateTimeout)(
      setTimeout: (GroupState[Counts], Seq[Event]) => Unit): DataFrame = {
    val session = events.sparkSession
    import session.implicits._
    events.groupByKey(_.key).flatMapGroupsWithState(mode, timeout) {
      (key: String, events: Iterator[Event], state: GroupState[Counts]) =>
        Iterator.single(
          if (state.hasTimedOut) close(key, state) else follow(key, events.toSeq, state, setTimeout))
    }.toDF()
  }

  private def close(key: String, state: GroupState[Counts]): Result = {
    val counts = state.get
    state.remove()
    Result(key, "closed", counts.n, counts.total)
  }

  private def follow(
      key: String,
      group: Seq[Event],
      state: GroupState[Counts],
      setTimeout: (GroupState[Counts], Seq[Event]) => Unit): Result = {
    val counts = add(state, group)
    if (group.exists(_.value == 0)) {
      if (state.exists) state.remove()
      Result(key, "forgotten", counts.n, counts.total)
    } else {
      state.update(counts)
      setTimeout(state, group)
      Result(key, "seen", counts.n, counts.total)
    }
  }

  private def add(state: GroupState[Counts], group: Seq[Event]): Counts = {
    val before = state.getOption.getOrElse(Counts(0, 0))
    Counts(before.n + group.size, before.total + group.map(_.value).sum)
  }

  private def typed(events: DataFrame): Dataset[Event] = {
    val session = events.sparkSession
    import session.implicits._
    events.select("key", "ts", "value", "id").as[Event]
  }
}
