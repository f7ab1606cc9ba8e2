package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.execution.SparkPlan

/**
 * A subclass of one of Spark's operators that takes its place in a plan. It has the operator's parameters, because
 * Spark copies plans by reflection, but is not equal to it: else the replacement would be taken for no change and
 * dropped.
 */
trait OperatorTwin extends SparkPlan {
  override def canEqual(other: Any): Boolean = other != null && other.getClass == getClass

  override def equals(other: Any): Boolean = canEqual(other) && super.equals(other)

  override def hashCode: Int = 31 * super.hashCode + 1
}
