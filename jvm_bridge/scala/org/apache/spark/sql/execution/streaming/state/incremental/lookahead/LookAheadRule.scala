package org.apache.spark.sql.execution.streaming.state.incremental.lookahead

import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.state.incremental.IncrementalStateStoreProvider
import org.apache.spark.sql.execution.streaming.state.incremental.release.{Jar, KeyedOperators}
import org.apache.spark.sql.execution.streaming.state.incremental.settings.OptionTexts

/**
 * Rule that puts a [[LookAheadExec]] below each operator that looks the keys of its input up in this store:
 * aggregations, deduplication, functions of groups, processors in Python, and both sides of a join of streams.
 */
class LookAheadRule extends Rule[SparkPlan] {
  override def apply(plan: SparkPlan): SparkPlan =
    if (Jar.problem.isDefined || !isThisStore || !OptionTexts.of(conf).boolean("lookAhead")) plan
    else plan.transformUp { case node if KeyedOperators.of(node).nonEmpty => withLookAhead(node) }

  private def isThisStore: Boolean = conf.stateStoreProviderClass == classOf[IncrementalStateStoreProvider].getName

  private def withLookAhead(node: SparkPlan): SparkPlan = {
    val operators = KeyedOperators.of(node)
    node.withNewChildren(node.children.map { child =>
      operators.find(_.input eq child).filterNot(_ => child.isInstanceOf[LookAheadExec]).fold(child)(operator =>
        LookAheadExec(operator.keys, operator.id, child))
    })
  }
}
