package org.apache.spark.sql.execution.streaming.state.incremental.vectorized

import java.util.concurrent.atomic.AtomicBoolean

import scala.util.control.NonFatal

import org.apache.spark.sql.catalyst.expressions.PythonUDF
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.python.streaming.FlatMapGroupsInPandasWithStateExec
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.state.incremental.release.{ArrowTypes, Jar}

/**
 * Replaces Spark's operator of `applyInPandasWithState` by [[VectorizedGroupsExec]] where the function is
 * marked, and, with the session option, where it is not.
 *
 * Whatever the rule does not know it leaves as it is: a marked function then runs group by group on Spark's
 * own operator, with equal results.
 */
class VectorizedRule extends Rule[SparkPlan] {
  import VectorizedRule._

  override def apply(plan: SparkPlan): SparkPlan = plan.transform {
    case exec: FlatMapGroupsInPandasWithStateExec if !exec.isInstanceOf[VectorizedGroupsExec] =>
      replacement(exec).getOrElse(exec)
  }

  private def replacement(exec: FlatMapGroupsInPandasWithStateExec): Option[SparkPlan] = {
    val options = VectorizedOptions(conf)
    if (!options.enabled) None
    else {
      val marked = exec.functionExpr match {
        case udf: PythonUDF if GroupsMode.of(udf.name).isDefined => Some(udf)
        case udf: PythonUDF if options.accelerate => Some(PickledCommand.accelerated(udf))
        case _ => None
      }
      marked.filter(udf => isKnown(exec, udf)).map(VectorizedGroupsExec(exec, _))
    }
  }

  private def isKnown(exec: FlatMapGroupsInPandasWithStateExec, udf: PythonUDF): Boolean =
    if (Jar.problem.isDefined) {
      warnOnce(s"${udf.name} runs group by group: ${Jar.problem.get}")
      false
    } else {
      // A query without state info is a batch query; a state of format 1 was begun by a Spark before 2.4.
      exec.stateInfo.isDefined && exec.stateFormatVersion == 2 && exec.groupingAttributes.nonEmpty &&
        exec.stateType.nonEmpty && exec.outAttributes.nonEmpty && canSendAsArrow(exec, udf)
    }

  private def canSendAsArrow(exec: FlatMapGroupsInPandasWithStateExec, udf: PythonUDF): Boolean =
    try {
      ArrowTypes.check(exec.stateType, conf.sessionLocalTimeZone)
      ArrowTypes.check(exec.schema, conf.sessionLocalTimeZone)
      true
    } catch {
      case NonFatal(e) =>
        warnOnce(s"${udf.name} runs group by group: a column of its state or output has no Arrow type " +
          s"(${e.getMessage}).")
        false
    }

  private def warnOnce(message: String): Unit = if (warned.compareAndSet(false, true)) logWarning(message)
}

private object VectorizedRule {
  private val warned = new AtomicBoolean(false)
}
