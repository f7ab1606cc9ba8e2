package org.apache.spark.sql.execution.streaming.state.incremental.lookahead

import java.util.ArrayDeque

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression, SortOrder, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}
import org.apache.spark.sql.execution.streaming.state.incremental.IncrementalStateStoreProvider
import org.apache.spark.sql.execution.streaming.state.incremental.SparseStores
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

/**
 * Operator that passes the input of a stateful operator on as it is. If the store of that operator was restored lazily,
 * this one takes some thousand rows at a time and has the store fetch the blocks of all their keys together, where the
 * other would wait for each block in turn.
 *
 * @param keys     the expressions by which the operator looks a row up
 * @param operator id of the stateful operator in its query
 */
private[lookahead] final case class LookAheadExec(keys: Seq[Expression], operator: Long, child: SparkPlan)
    extends UnaryExecNode {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering

  protected override def doExecute(): RDD[InternalRow] = {
    val (id, expressions, columns, types) = (operator, keys, child.output, keys.map(_.dataType))
    child.execute().mapPartitionsInternal { rows =>
      lazy val key = UnsafeProjection.create(expressions, columns)
      new LookAheadRows(rows, SparseStores.expecting(id, types), row => key(row))
    }
  }

  protected override def withNewChildInternal(newChild: SparkPlan): LookAheadExec = copy(child = newChild)
}

/**
 * Rows, some of which are taken before they are asked for.
 *
 * @param expecting called with the first row; the function that announces keys to the store, None if there is nothing
 *                  to announce
 * @param key       the function that makes the key of a row; its result is reused
 */
private[lookahead] final class LookAheadRows(
    rows: Iterator[InternalRow],
    expecting: => Option[Array[UnsafeRow] => Unit],
    key: InternalRow => UnsafeRow)
    extends Iterator[InternalRow] {
  import LookAheadRows._

  private lazy val announce = expecting
  private val rowsAhead = new ArrayDeque[InternalRow]

  def hasNext: Boolean = !rowsAhead.isEmpty || rows.hasNext

  def next(): InternalRow = {
    if (rowsAhead.isEmpty && announce.isDefined && rows.hasNext) take()
    if (rowsAhead.isEmpty) rows.next() else rowsAhead.poll()
  }

  private def take(): Unit = {
    val keys = new ArrayBuffer[UnsafeRow]
    var bytes = 0L
    while (rows.hasNext && keys.length < MaxRows && bytes < MaxBytes) {
      val row = rows.next().copy()
      rowsAhead.add(row)
      keys += key(row).copy()
      bytes += keys.last.getSizeInBytes
      row match {
        case unsafe: UnsafeRow => bytes += unsafe.getSizeInBytes
        case other => bytes += GuessedBytes * other.numFields
      }
    }
    announce.get(keys.toArray)
  }
}

private[lookahead] object LookAheadRows {
  val MaxRows = 16384
  val MaxBytes = 8L << 20

  /** The bytes that are counted for a value whose size is not known. */
  private val GuessedBytes = 64L
}
