package statestore.queries

import org.apache.spark.sql.{DataFrame, Encoders, ForeachWriter, Row, SparkSession}
import org.apache.spark.sql.execution.streaming.sources.LowLatencyMemoryStream
import org.apache.spark.sql.streaming.{OutputMode, StatefulProcessor, TimeMode, TimerValues, Trigger, TTLConfig, ValueState}

/** Queries that Spark runs on its own state store alone. */
object Refused {

  def transformWithState(events: DataFrame): DataFrame = {
    val session = events.sparkSession
    import session.implicits._
    events.select($"key").as[String].groupByKey(identity)
      .transformWithState(new Counter, TimeMode.None(), OutputMode.Update()).toDF("key", "n")
  }

  /** Runs an aggregation in real-time mode until it fails or `waitMs` are over; throws what it threw. */
  def realTime(session: SparkSession, checkpoint: String, batchMs: Long, waitMs: Long): Unit = {
    implicit val encoder: org.apache.spark.sql.Encoder[String] = Encoders.STRING
    val source = LowLatencyMemoryStream[String](session, 1)
    val query = source.toDF().groupBy("value").count().writeStream
      .outputMode(OutputMode.Update()).foreach(new Discard)
      .option("checkpointLocation", checkpoint).trigger(Trigger.RealTime(batchMs)).start()
    try {
      source.addData("a", "b")
      query.awaitTermination(waitMs)
    } finally query.stop()
  }
}

class Counter extends StatefulProcessor[String, String, (String, Long)] {
  @transient private var count: ValueState[Long] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit =
    count = getHandle.getValueState[Long]("count", Encoders.scalaLong, TTLConfig.NONE)

  override def handleInputRows(
      key: String, rows: Iterator[String], timerValues: TimerValues): Iterator[(String, Long)] = {
    count.update(Option(count.get()).getOrElse(0L) + rows.size)
    Iterator.single(key -> count.get())
  }
}

class Discard extends ForeachWriter[Row] {
  override def open(partitionId: Long, epochId: Long): Boolean = true
  override def process(row: Row): Unit = ()
  override def close(errorOrNull: Throwable): Unit = ()
}
