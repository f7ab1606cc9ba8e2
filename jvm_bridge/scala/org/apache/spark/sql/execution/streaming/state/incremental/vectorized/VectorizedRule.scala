package org.apache.spark.sql.execution.streaming.state.incremental.vectorized

import java.util.concurrent.atomic.AtomicBoolean

import scala.util.control.NonFatal

import org.apache.spark.api.python.{ChainedPythonFunctions, SimplePythonFunction}
import org.apache.spark.sql.{SparkSessionExtensions, SparkSessionExtensionsProvider}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression, PythonUDF}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{ColumnarRule, SparkPlan}
import org.apache.spark.sql.execution.python.streaming.FlatMapGroupsInPandasWithStateExec
import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.execution.streaming.state.incremental.lookahead.LookAheadRule
import org.apache.spark.sql.execution.streaming.state.incremental.placement.PlacementRule
import org.apache.spark.sql.execution.streaming.state.incremental.processors.{
  PickledCall, ReplacedOperator, StatefulProcessorRule
}
import org.apache.spark.sql.execution.streaming.state.incremental.release.{
  ArrowTypes, Jar, OperatorTwin, WorkerSettings
}
import org.apache.spark.sql.execution.streaming.state.incremental.release.SparkNames.{
  StateData, StatefulOperatorStateInfo
}
import org.apache.spark.sql.execution.streaming.state.incremental.settings.OptionTexts
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.streaming.{GroupStateTimeout, OutputMode}
import org.apache.spark.sql.types.StructType

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
        case udf: PythonUDF if ReplacedOperator.isUnasked(conf, "vectorized.accelerate") && !areLinesProfiled =>
          Some(PickledCommand.accelerated(udf))
        case _ => None
      }
      marked.filter(udf => isKnown(exec, udf)).map(VectorizedGroupsExec(exec, _))
    }
  }

  /** A profile of memory has the lines of the function that the worker calls: here these were not the user's. */
  private def areLinesProfiled: Boolean = conf.pythonUDFProfiler.contains("memory")

  private def isKnown(exec: FlatMapGroupsInPandasWithStateExec, udf: PythonUDF): Boolean = {
    val obstacle = Jar.problem.orElse(ReplacedOperator.obstacle(udf.func).map(_ + "."))
    if (obstacle.isDefined) {
      warnOnce(s"${udf.name} runs group by group: ${obstacle.get}")
      false
    } else {
      // A query without state info is a batch query; Sparks before 2.4 began states of format 1.
      exec.stateInfo.isDefined && exec.stateFormatVersion == 2 && exec.groupingAttributes.nonEmpty &&
      exec.stateType.nonEmpty && exec.outAttributes.nonEmpty && canCarry(exec, udf) && canSendAsArrow(exec, udf)
    }
  }

  private def canCarry(exec: FlatMapGroupsInPandasWithStateExec, udf: PythonUDF): Boolean = {
    val schemas = Seq(exec.child.schema, exec.stateType, exec.schema)
    val others = schemas.filter(_.existsRecursively(kind => onlySparks(kind.getClass.getSimpleName)))
    if (others.nonEmpty)
      warnOnce(s"${udf.name} runs group by group: only Spark's operator takes ${others.head.simpleString}.")
    others.isEmpty
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

  /** Classes of types that Spark's operator alone takes: releases differ in which of them they have. */
  private val onlySparks = Set("CharType", "VarcharType", "GeometryType", "GeographyType")
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

/**
 * Spark's operator of `applyInPandasWithState`, except for the way in which the rows of a partition meet their states.
 *
 * Distribution, ordering, late rows, watermarks, schema checks, metrics and the commit stay those of Spark's operator.
 */
class VectorizedGroupsExec(
    function: Expression,
    grouping: Seq[Attribute],
    out: Seq[Attribute],
    state: StructType,
    info: Option[StatefulOperatorStateInfo],
    formatVersion: Int,
    mode: OutputMode,
    timeout: GroupStateTimeout,
    timestampMs: Option[Long],
    lateWatermark: Option[Long],
    evictionWatermark: Option[Long],
    skipInitial: Boolean,
    input: SparkPlan)
    extends FlatMapGroupsInPandasWithStateExec(
      function, grouping, out, state, info, formatVersion, mode, timeout, timestampMs, lateWatermark,
      evictionWatermark, skipInitial, input)
    with OperatorTwin
    with ReplacedOperator {

  private val udf = functionExpr.asInstanceOf[PythonUDF]
  private val options = VectorizedOptions(conf)

  /** The call that the tasks get, made of the session's settings here, on the driver. */
  private val call = GroupsCall(
    function = Seq((ChainedPythonFunctions(Seq(udf.func)), udf.resultId.id)),
    mode = GroupsMode.of(udf.name).get,
    groupingAttributes = groupingAttributes,
    rowAttributes = child.output.map(_.withNullability(true)),
    stateType = stateType,
    outAttributes = outAttributes,
    timeoutConf = timeoutConf,
    batchTimestampMs = batchTimestampMs,
    watermarkMs = eventTimeWatermarkForEviction,
    watermarkPresent = watermarkPresent,
    settings = WorkerSettings.of(conf),
    maxBatchBytes = options.maxBatchBytes,
    maxGroupBytes = options.maxGroupBytes)

  override def nodeName: String = "VectorizedFlatMapGroupsInPandasWithState"

  override protected def withNewChildInternal(newChild: SparkPlan): FlatMapGroupsInPandasWithStateExec =
    new VectorizedGroupsExec(functionExpr, groupingAttributes, outAttributes, stateType, stateInfo,
      stateFormatVersion, outputMode, timeoutConf, batchTimestampMs, eventTimeWatermarkForLateEvents,
      eventTimeWatermarkForEviction, skipEmittingInitialStateKeys, newChild)

  override def createInputProcessor(store: StateStore): InputProcessor = new InputProcessor(store) {
    countReplaced()
    private val partition = new GroupsPartition(call, store, stateManager, stateEncoder,
      GroupMetrics(numOutputRows, numUpdatedStateRows, numRemovedStateRows, pythonMetrics))

    override def processNewData(rows: Iterator[InternalRow]): Iterator[InternalRow] = partition.withRows(rows)

    override def processTimedOutState(): Iterator[InternalRow] =
      if (isTimeoutEnabled) partition.timedOut() else Iterator.empty

    override protected def callFunctionAndUpdateState(
        stateData: StateData,
        valueRows: Iterator[InternalRow],
        hasTimedOut: Boolean): Iterator[InternalRow] =
      throw new UnsupportedOperationException("groups are called many at a time")
  }
}

object VectorizedGroupsExec {
  /** Returns the vectorised twin of Spark's operator, which calls the marked function `udf`. */
  def apply(exec: FlatMapGroupsInPandasWithStateExec, udf: PythonUDF): VectorizedGroupsExec = {
    val twin = new VectorizedGroupsExec(udf, exec.groupingAttributes, exec.outAttributes, exec.stateType,
      exec.stateInfo, exec.stateFormatVersion, exec.outputMode, exec.timeoutConf, exec.batchTimestampMs,
      exec.eventTimeWatermarkForLateEvents, exec.eventTimeWatermarkForEviction,
      exec.skipEmittingInitialStateKeys, exec.child)
    twin.copyTagsFrom(exec)
    twin
  }
}
