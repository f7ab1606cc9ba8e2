package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.execution.SparkPlan

/** Spark's operators of `transformWithState`. Before 4.2 they take any store that has column families. */
object StatefulProcessors {
  /** What runs in an operator's place so that any store will do; none where it can stay as it is. */
  def onAnyStore(plan: SparkPlan): Option[SparkPlan] = None
}
