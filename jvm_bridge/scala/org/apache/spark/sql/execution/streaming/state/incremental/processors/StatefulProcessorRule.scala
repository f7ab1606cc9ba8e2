package org.apache.spark.sql.execution.streaming.state.incremental.processors

import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.state.incremental.IncrementalStateStoreProvider
import org.apache.spark.sql.execution.streaming.state.incremental.release.{Jar, StatefulProcessors}

/**
 * Lets `transformWithState` run on this store: replaces Spark's operators of it, in Scala and in Python, by
 * ones that differ in nothing but that they do not ask for Spark's own RocksDB store by the name of its class.
 *
 * Where another class is configured, every plan stays as it is, and Spark's check with it.
 */
class StatefulProcessorRule extends Rule[SparkPlan] {
  override def apply(plan: SparkPlan): SparkPlan =
    if (conf.stateStoreProviderClass != StatefulProcessorRule.provider || Jar.problem.isDefined) plan
    else plan.transform(Function.unlift(StatefulProcessors.onAnyStore))
}

private object StatefulProcessorRule {
  private val provider = classOf[IncrementalStateStoreProvider].getName
}
