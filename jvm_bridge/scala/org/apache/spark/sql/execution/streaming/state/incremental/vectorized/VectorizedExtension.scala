package org.apache.spark.sql.execution.streaming.state.incremental.vectorized

import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{ColumnarRule, SparkPlan}
import org.apache.spark.sql.execution.streaming.state.incremental.lookahead.LookAheadRule
import org.apache.spark.sql.execution.streaming.state.incremental.placement.PlacementRule
import org.apache.spark.sql.execution.streaming.state.incremental.processors.StatefulProcessorRule
import org.apache.spark.sql.{SparkSessionExtensions, SparkSessionExtensionsProvider}

/**
 * A session extension that runs marked `applyInPandasWithState` functions for many groups at once, and
 * `transformWithState` on this store. It announces keys to lazily restored stores, and moves stores to executors that
 * join.
 *
 * Spark finds it by a service file if the jar is on the class path when a session starts; otherwise
 * `spark.sql.extensions` names it. Both together do no harm, because each rule leaves replaced operators alone.
 *
 * It injects columnar rules and not planner strategies: columnar rules run last, after the streaming planner has given
 * every stateful operator its state info, its watermarks and its schema check, so the replaced operators have them all.
 */
class VectorizedExtension extends SparkSessionExtensionsProvider {
  override def apply(extensions: SparkSessionExtensions): Unit = {
    inject(extensions, new VectorizedRule)
    inject(extensions, new StatefulProcessorRule)
    inject(extensions, new LookAheadRule)
    inject(extensions, new PlacementRule)
  }

  private def inject(extensions: SparkSessionExtensions, rule: => Rule[SparkPlan]): Unit =
    extensions.injectColumnar { _ =>
      new ColumnarRule {
        override val preColumnarTransitions: Rule[SparkPlan] = rule
      }
    }
}
