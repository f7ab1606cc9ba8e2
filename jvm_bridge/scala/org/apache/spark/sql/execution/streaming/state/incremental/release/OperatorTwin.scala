package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.execution.SparkPlan

/**
 * A subclass of one of Spark's operators that replaces it in a plan. It has the operator's parameters, because Spark
 * copies plans by reflection, but is not equal to the operator: Spark would take the replacement for no change and drop
 * it.
 */
trait OperatorTwin extends SparkPlan {
  override def canEqual(other: Any): Boolean = other != null && other.getClass == getClass

  override def equals(other: Any): Boolean = canEqual(other) && super.equals(other)

  override def hashCode: Int = 31 * super.hashCode + 1
}
