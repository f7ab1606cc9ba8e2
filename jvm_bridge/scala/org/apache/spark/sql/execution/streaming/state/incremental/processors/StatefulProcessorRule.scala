package org.apache.spark.sql.execution.streaming.state.incremental.processors

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.sql.catalyst.expressions.PythonUDF
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.state.incremental.release.{Jar, ProcessorHandles, StatefulProcessors}
import org.apache.spark.sql.execution.streaming.state.incremental.release.ProcessorHandles.PythonProcessorExec

/**
 * A rule that replaces Spark's operators of `transformWithState`. On this store and on Spark's own RocksDB store,
 * operators in Python become [[BatchedProcessorExec]]. On this store, the others and those that cannot be batched
 * become operators that do not check the store's class, which Spark compares with its own RocksDB store.
 *
 * If another class is configured, Spark's check of the store stays.
 */
class StatefulProcessorRule extends Rule[SparkPlan] {
  override def apply(plan: SparkPlan): SparkPlan =
    if (Jar.problem.isDefined) plan
    else plan.transform(Function.unlift((node: SparkPlan) => batched(node).orElse(onThisStore(node))))

  private def onThisStore(node: SparkPlan): Option[SparkPlan] = node match {
    case _: BatchedProcessor => None
    case _ if ReplacedOperator.isOurStore(conf) => StatefulProcessors.onAnyStore(node)
    case _ => None
  }

  private def batched(node: SparkPlan): Option[SparkPlan] = node match {
    case _: BatchedProcessor => None
    case exec: PythonProcessorExec
        if exec.isStreaming && ReplacedOperator.isUnasked(conf, "vectorized.processors") =>
      StatefulProcessorRule.obstacle(exec) match {
        case None => Some(BatchedProcessorExec(exec))
        case Some(reason) =>
          if (StatefulProcessorRule.logged.add(reason)) {
            logWarning(s"A processor of transformWithState runs in Spark's own worker, call by call: $reason.")
          }
          None
      }
    case _ => None
  }
}

private[processors] object StatefulProcessorRule {
  private val logged = ConcurrentHashMap.newKeySet[String]()

  /** Returns the reason why a processor has to run in Spark's own worker; None if it can be batched. */
  private def obstacle(exec: PythonProcessorExec): Option[String] =
    if (ProcessorHandles.obstacle.isDefined) ProcessorHandles.obstacle
    else if (exec.hasInitialState) Some("the first batch of a query with initial state is not batched")
    else if (!exec.functionExpr.isInstanceOf[PythonUDF]) Some("its function is not known")
    else None
}
