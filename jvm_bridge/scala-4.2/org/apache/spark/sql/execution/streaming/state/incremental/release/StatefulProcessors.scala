package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec

/**
 * Spark's operators of `transformWithState`, which since 4.2 refuse every store but Spark's own RocksDB. In batch
 * queries they make a store of their own and refuse none.
 */
object StatefulProcessors {
  /** What runs in an operator's place so that any store will do; none where it can stay as it is. */
  def onAnyStore(plan: SparkPlan): Option[SparkPlan] = plan match {
    case _: AnyStoreProcessorExec | _: AnyStorePythonProcessorExec => None
    case exec: TransformWithStateExec if exec.isStreaming => Some(tagged(exec, new AnyStoreProcessorExec(exec)))
    case exec: TransformWithStateInPySparkExec if exec.isStreaming =>
      Some(tagged(exec, new AnyStorePythonProcessorExec(exec)))
    case _ => None
  }

  private def tagged(from: SparkPlan, to: SparkPlan): SparkPlan = {
    to.copyTagsFrom(from)
    to
  }
}
