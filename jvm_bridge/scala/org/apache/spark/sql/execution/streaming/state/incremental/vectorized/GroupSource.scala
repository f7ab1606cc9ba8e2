package org.apache.spark.sql.execution.streaming.state.incremental.vectorized

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.api.python.PythonSQLUtils
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder
import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.Row

/**
 * Packs groups into Arrow batches: whole groups while a batch has room, and a group in pieces where it alone
 * is larger than the limit for groups. What a batch holds in memory is bounded by the two limits together,
 * whatever the data.
 *
 * Keys are remembered in `pending` as their groups are sent.
 */
private[vectorized] class GroupSource(
    call: GroupsCall,
    groups: Iterator[Group],
    states: StateReader,
    pending: PendingKeys,
    encoder: ExpressionEncoder[Row]) {

  private var open: Group = _
  private var bytes = 0L
  private var rows = 0
  private var largestState = 64L
  private val maxPieceRows = if (call.mode.pickledStates) call.maxRecordsPerBatch else Int.MaxValue
  private val run = new ArrayBuffer[Group]
  private lazy val unsafeRow = UnsafeProjection.create(call.rowType)
  private lazy val stateToRow = encoder.createDeserializer()

  def hasNext: Boolean = open != null || groups.hasNext

  /** Fills `batch` with the next groups; there is at least one. */
  def fill(batch: GroupBatch): Unit = {
    bytes = 0
    rows = 0
    do {
      sendPiece(batch)
      if (run.length >= runLength || open != null || isFull || !groups.hasNext) sendStates(batch)
    } while (open == null && !isFull && groups.hasNext)
  }

  private def isFull: Boolean = rows >= call.maxRecordsPerBatch || bytes >= call.maxBatchBytes

  /** How many states may be read at once: few when they are large, so that they cannot outgrow the batch. */
  private def runLength: Long = math.max(1L, math.min(1024L, (call.maxBatchBytes - bytes) / largestState))

  /** Sends the next group, or the next piece of one that is too large; `open` is the group that goes on. */
  private def sendPiece(batch: GroupBatch): Unit = {
    val continued = open != null
    val group = if (continued) open else groups.next()
    if (continued) batch.addContinued(group.key)
    else {
      pending.add(group.key)
      batch.addGroup(group.key)
      run += group
    }
    val more = sendRows(group.rows, batch)
    open = if (more) group else null
    batch.endGroup(continued, more)
    rows += 1
  }

  private def sendRows(it: Iterator[InternalRow], batch: GroupBatch): Boolean = {
    var pieceBytes = 0L
    var pieceRows = 0
    var room = true
    while (room && it.hasNext) {
      val row = it.next() match {
        case unsafe: UnsafeRow => unsafe
        case other => unsafeRow(other)
      }
      batch.addRow(row)
      pieceBytes += row.getSizeInBytes
      pieceRows += 1
      room = pieceBytes < call.maxGroupBytes && pieceRows < maxPieceRows
    }
    bytes += pieceBytes
    rows += math.max(pieceRows - 1, 0)
    it.hasNext
  }

  /** Sends the states of the groups that were begun since the last run. */
  private def sendStates(batch: GroupBatch): Unit = if (run.nonEmpty) {
    val read =
      if (run.head.state.isDefined) run.iterator.map(_.state.get) else states.read(run.map(_.key).toArray)
    read.foreach { row =>
      val size = if (row == null) 0 else row.getSizeInBytes
      largestState = math.max(largestState, size)
      bytes += size
      val timeout =
        if (row == null || !call.hasTimeout) GroupsCall.NoTimestamp
        else row.getLong(StateReader.TimeoutOrdinal)
      if (row == null || row.isNullAt(StateReader.StateOrdinal)) batch.addState(GroupSource.NoState, timeout)
      else if (call.mode.pickledStates) batch.addState(pickled(row), timeout)
      else batch.addState(row, timeout)
    }
    run.clear()
  }

  private def pickled(row: UnsafeRow): InternalRow =
    new GenericInternalRow(Array[Any](
      PythonSQLUtils.toPyRow(stateToRow(row.getStruct(StateReader.StateOrdinal, call.stateType.length)))))
}

private object GroupSource {
  private val NoState: InternalRow = new GenericInternalRow(1)
}
