package org.apache.spark.sql.execution.streaming.state.incremental.vectorized

import java.util.concurrent.atomic.AtomicBoolean

import scala.util.control.NonFatal

import org.apache.spark.api.python.SimplePythonFunction
import org.apache.spark.sql.catalyst.expressions.PythonUDF
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.python.streaming.FlatMapGroupsInPandasWithStateExec
import org.apache.spark.sql.execution.streaming.state.incremental.processors.{PickledCall, ReplacedOperator}
import org.apache.spark.sql.execution.streaming.state.incremental.release.{ArrowTypes, Jar}
import org.apache.spark.sql.execution.streaming.state.incremental.settings.OptionTexts
import org.apache.spark.sql.internal.SQLConf

/**
 * A rule that replaces Spark's operator of `applyInPandasWithState` by [[VectorizedGroupsExec]] if the function is
 * marked, or if the rule for operators that nobody marked, in [[ReplacedOperator]], applies.
 *
 * The rule leaves operators that it does not know as they are: a marked function then runs group by group on Spark's
 * own operator, with equal results.
 */
class VectorizedRule extends Rule[SparkPlan] {
  import VectorizedRule._

  override def apply(plan: SparkPlan): SparkPlan = plan.transform {
    case exec: FlatMapGroupsInPandasWithStateExec if !exec.isInstanceOf[VectorizedGroupsExec] =>
      replacement(exec).getOrElse(exec)
  }

  private def replacement(exec: FlatMapGroupsInPandasWithStateExec): Option[SparkPlan] = {
    if (!ReplacedOperator.isEnabled(conf)) None
    else {
      val marked = exec.functionExpr match {
        case udf: PythonUDF if GroupsMode.of(udf.name).isDefined => Some(udf)
        case udf: PythonUDF if ReplacedOperator.isUnasked(conf, "vectorized.accelerate") =>
          Some(PickledCommand.accelerated(udf))
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
      // A query without state info is a batch query; Sparks before 2.4 began states of format 1.
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

/**
 * The options below `vectorized.`, read on the driver when a batch is planned.
 *
 * @param maxBatchBytes bytes of rows and states after which no group joins a call
 * @param maxGroupBytes bytes of rows up to which a group is passed on whole
 */
private[vectorized] case class VectorizedOptions(maxBatchBytes: Long, maxGroupBytes: Long)

private[vectorized] object VectorizedOptions {

  /**
   * Reads the options of a session.
   *
   * @throws java.lang.IllegalArgumentException for a wrong value; the message names the option, the value and the
   *   remedy
   */
  def apply(conf: SQLConf): VectorizedOptions = {
    val options = OptionTexts.of(conf)
    VectorizedOptions(
      maxBatchBytes = options.bytes("vectorized.maxBatchBytes"),
      maxGroupBytes = options.bytes("vectorized.maxGroupBytes"))
  }
}

/** A wrapper that makes an ordinary Python function, which the JVM has only as pickled bytes, an accelerated one. */
private[vectorized] object PickledCommand {
  private val Module = "state_store.functions.accelerated"
  private val Function = "accelerated_command"

  def accelerated(udf: PythonUDF): PythonUDF = {
    val f = udf.func
    val wrapped = SimplePythonFunction(
      PickledCall(Module, Function, f.command.toArray), f.envVars, f.pythonIncludes, f.pythonExec, f.pythonVer,
      f.broadcastVars, f.accumulator)
    udf.copy(name = GroupsMode.acceleratedName(udf.name), func = wrapped)
  }
}
