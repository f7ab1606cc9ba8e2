package org.apache.spark.sql.execution.streaming.state.incremental.lookahead

import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.state.incremental.IncrementalStateStoreProvider
import org.apache.spark.sql.execution.streaming.state.incremental.release.{Jar, KeyedOperators}
import org.apache.spark.sql.execution.streaming.state.incremental.settings.OptionTexts

/**
 * Rule that puts a [[LookAheadExec]] below each operator that looks the keys of its input up in this store:
 * aggregations, deduplication, functions of groups, and processors in Python.
 */
class LookAheadRule extends Rule[SparkPlan] {
  override def apply(plan: SparkPlan): SparkPlan =
    if (Jar.problem.isDefined || !isThisStore || !OptionTexts.of(conf).boolean("lookAhead")) plan
    else plan.transformUp(Function.unlift((node: SparkPlan) => KeyedOperators.of(node).map(withLookAhead(node, _))))

  private def isThisStore: Boolean = conf.stateStoreProviderClass == classOf[IncrementalStateStoreProvider].getName

  private def withLookAhead(node: SparkPlan, operator: KeyedOperators.Operator): SparkPlan =
    node.withNewChildren(node.children.map { child =>
      if ((child eq operator.input) && !child.isInstanceOf[LookAheadExec]) {
        LookAheadExec(operator.keys, operator.id, child)
      } else child
    })
}
