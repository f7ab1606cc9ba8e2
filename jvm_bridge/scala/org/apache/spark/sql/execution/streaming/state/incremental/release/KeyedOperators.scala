package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.python.streaming.FlatMapGroupsInPandasWithStateExec
import org.apache.spark.sql.execution.streaming.state.incremental.release.SparkNames._

/** Operators that look each row of an input up in their state by key. */
object KeyedOperators {

  /**
   * An operator and one of its inputs.
   *
   * @param keys  the expressions over the input that make the key
   * @param id    its id in the query
   * @param input the child whose rows are looked up
   */
  final case class Operator(keys: Seq[Expression], id: Long, input: SparkPlan)

  /** Returns an operator for each input of which rows are looked up; none for another kind, and in a batch query. */
  def of(plan: SparkPlan): Seq[Operator] = plan match {
    case exec: StateStoreRestoreExec => operator(exec.keyExpressions, exec.stateInfo, exec.child)
    case exec: BaseStreamingDeduplicateExec => operator(exec.keyExpressions, exec.stateInfo, exec.child)
    case exec: FlatMapGroupsWithStateExec => operator(exec.groupingAttributes, exec.stateInfo, exec.child)
    case exec: FlatMapGroupsInPandasWithStateExec => operator(exec.groupingAttributes, exec.stateInfo, exec.child)
    case exec: ProcessorHandles.PythonProcessorExec => operator(exec.groupingAttributes, exec.stateInfo, exec.child)
    case exec: StreamingSymmetricHashJoinExec =>
      operator(exec.leftKeys, exec.stateInfo, exec.left) ++ operator(exec.rightKeys, exec.stateInfo, exec.right)
    case _ => Nil
  }

  private def operator(
      keys: Seq[Expression],
      info: Option[StatefulOperatorStateInfo],
      input: SparkPlan): Seq[Operator] =
    if (keys.isEmpty) Nil else info.map(state => Operator(keys, state.operatorId, input)).toSeq
}
