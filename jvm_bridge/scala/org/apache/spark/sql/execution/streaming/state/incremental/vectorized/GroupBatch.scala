package org.apache.spark.sql.execution.streaming.state.incremental.vectorized

import org.apache.arrow.vector.{BigIntVector, TinyIntVector, ValueVector, VectorSchemaRoot}
import org.apache.arrow.vector.complex.{ListVector, StructVector}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, SpecializedGetters, UnsafeRow}
import org.apache.spark.sql.execution.arrow.ArrowWriter
import org.apache.spark.unsafe.types.UTF8String

/**
 * The vectors of one Arrow batch in the layout of [[GroupsCall]], written group by group.
 *
 * Call for each group `addGroup` or `addContinued`, then `addRow`s, then `endGroup`; `addState` for the groups that
 * began with `addGroup`, in their order, at any time after; then `finish`, and `reset` once the batch was sent.
 */
private[vectorized] class GroupBatch(root: VectorSchemaRoot, header: String) {
  private val groups = root.getVector(0).asInstanceOf[StructVector]
  private val headers = GroupBatch.writer(groups, 0)
  private val flags = groups.getChildByOrdinal(1).asInstanceOf[TinyIntVector]
  private val timeouts = groups.getChildByOrdinal(2).asInstanceOf[BigIntVector]
  private val keys = groups.getChildByOrdinal(3).asInstanceOf[StructVector]
  private val states = GroupBatch.writer(groups, 4)
  private val rowLists = groups.getChildByOrdinal(5).asInstanceOf[ListVector]
  private val rows = rowLists.getDataVector.asInstanceOf[StructVector]
  private val keyWriters = GroupBatch.childWriters(keys)
  private val rowWriters = GroupBatch.childWriters(rows)

  private var groupCount = 0
  private var stateCount = 0
  private var rowCount = 0
  private var groupStart = 0
  private var headerSent = false

  def addGroup(key: UnsafeRow): Unit = {
    groups.setIndexDefined(groupCount)
    headers.write(if (headerSent) GroupBatch.Null else headerRow, 0)
    headerSent = true
    GroupBatch.writeStruct(keys, keyWriters, groupCount, key)
    rowLists.startNewValue(groupCount)
    groupStart = rowCount
  }

  /** Begins the next piece of a group whose first piece, with its state, went in an earlier batch. */
  def addContinued(key: UnsafeRow): Unit = {
    addGroup(key)
    addState(GroupBatch.Null, GroupsCall.NoTimestamp)
  }

  def addRow(row: InternalRow): Unit = {
    GroupBatch.writeStruct(rows, rowWriters, rowCount, row)
    rowCount += 1
  }

  def endGroup(continued: Boolean, more: Boolean): Unit = {
    rowLists.endValue(groupCount, rowCount - groupStart)
    flags.setSafe(groupCount, (if (continued) 1 else 0) | (if (more) 2 else 0))
    groupCount += 1
  }

  /** Adds the state in the first column of a row, or no state if the column is null. */
  def addState(row: InternalRow, timeoutMs: Long): Unit = {
    states.write(row, 0)
    timeouts.setSafe(stateCount, timeoutMs)
    stateCount += 1
  }

  def finish(): Unit = {
    headers.finish()
    flags.setValueCount(groupCount)
    timeouts.setValueCount(groupCount)
    keyWriters.foreach(_.finish())
    keys.setValueCount(groupCount)
    states.finish()
    rowWriters.foreach(_.finish())
    rows.setValueCount(rowCount)
    rowLists.setValueCount(groupCount)
    groups.setValueCount(groupCount)
    root.setRowCount(groupCount)
  }

  def reset(): Unit = {
    headers.reset()
    states.reset()
    keyWriters.foreach(_.reset())
    rowWriters.foreach(_.reset())
    groups.reset()
    root.setRowCount(0)
    groupCount = 0
    stateCount = 0
    rowCount = 0
  }

  private def headerRow: InternalRow = new GenericInternalRow(Array[Any](UTF8String.fromString(header)))
}

private object GroupBatch {
  private val Null: InternalRow = new GenericInternalRow(1)

  private def childWriters(vector: StructVector): Array[ColumnWriter] =
    Array.tabulate(vector.size())(writer(vector, _))

  private def writer(vector: StructVector, child: Int): ColumnWriter =
    new ColumnWriter(vector.getChildByOrdinal(child).asInstanceOf[ValueVector])

  private def writeStruct(
      vector: StructVector,
      children: Array[ColumnWriter],
      index: Int,
      row: InternalRow): Unit = {
    vector.setIndexDefined(index)
    var i = 0
    while (i < children.length) {
      children(i).write(row, i)
      i += 1
    }
  }
}

/** Spark's writer of one Arrow column. Its type cannot be named before Spark 4.2. */
private[vectorized] final class ColumnWriter(vector: ValueVector) {
  private[this] val writer = ArrowWriter.createFieldWriter(vector)

  /** Appends the value of a row at an ordinal. */
  def write(row: SpecializedGetters, ordinal: Int): Unit = writer.write(row, ordinal)

  def finish(): Unit = writer.finish()

  def reset(): Unit = writer.reset()
}
