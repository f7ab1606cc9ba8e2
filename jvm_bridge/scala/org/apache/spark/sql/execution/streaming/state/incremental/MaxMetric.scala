package org.apache.spark.sql.execution.streaming.state.incremental

import org.apache.spark.SparkContext
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric
import org.apache.spark.util.AccumulatorV2

/** A metric whose value over all tasks is the largest of theirs, where Spark's own add up. */
final class MaxMetric(kind: String) extends SQLMetric(kind, 0L) {
  override def copy(): MaxMetric = {
    val other = new MaxMetric(metricType)
    other.set(value)
    other
  }

  override def merge(other: AccumulatorV2[Long, Long]): Unit =
    if (!other.isZero) set(math.max(value, other.value))
}

/** A figure of each store of which the largest tells most: an age, the length of a chain. */
final case class StateStoreCustomMaxMetric(name: String, desc: String, kind: String = "sum")
  extends StateStoreCustomMetric {
  override def withNewDesc(desc: String): StateStoreCustomMaxMetric = copy(desc = desc)

  override def createSQLMetric(sparkContext: SparkContext): SQLMetric = {
    val metric = new MaxMetric(kind)
    metric.register(sparkContext, name = Some(desc), countFailedValues = false)
    metric
  }
}
