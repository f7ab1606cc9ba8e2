package statestore.queries

import org.apache.spark.sql.{Encoders, ForeachWriter, Row, SparkSession}
import org.apache.spark.sql.execution.streaming.sources.LowLatencyMemoryStream
import org.apache.spark.sql.streaming.{OutputMode, Trigger}

/** Queries that Spark runs on its own state store alone. */
object Refused {

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

class Discard extends ForeachWriter[Row] {
  override def open(partitionId: Long, epochId: Long): Boolean = true
  override def process(row: Row): Unit = ()
  override def close(errorOrNull: Throwable): Unit = ()
}
