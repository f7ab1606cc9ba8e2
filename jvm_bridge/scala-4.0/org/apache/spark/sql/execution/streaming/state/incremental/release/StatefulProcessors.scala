package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.execution.SparkPlan

/** Spark's operators of `transformWithState`. Before 4.2 they take any store that has column families. */
object StatefulProcessors {
  /** Returns an operator in place of another one, which runs on any store; None if the operator can stay as it is. */
  def onAnyStore(plan: SparkPlan): Option[SparkPlan] = None
}
