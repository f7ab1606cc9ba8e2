package org.apache.spark.sql.execution.streaming.state.incremental.vectorized

import java.util.ArrayDeque

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.Row
import org.apache.spark.sql.api.python.PythonSQLUtils
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder
import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, UnsafeProjection, UnsafeRow}

/**
 * A source that packs groups into Arrow batches: whole groups while a batch has room, and a group in pieces if it alone
 * is larger than the limit for groups. The two limits together bound the memory of a batch for any data.
 *
 * For functions in Spark's own form the pieces are those of Spark's operator: a group ends a piece where its rows,
 * counted over all groups, fill a batch of `maxRecordsPerBatch`.
 *
 * It adds the keys to `pending` as it sends their groups.
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
  private val asSparkCuts = call.mode.pickledStates
  private val run = new ArrayBuffer[Group]
  private lazy val unsafeRow = UnsafeProjection.create(call.rowType)
  private lazy val stateToRow = encoder.createDeserializer()

  def hasNext: Boolean = open != null || groups.hasNext

  /** Fills a batch with the next groups; there must be at least one. */
  def fill(batch: GroupBatch): Unit = {
    bytes = 0
    if (!asSparkCuts || rows >= call.maxRecordsPerBatch) rows = 0
    do {
      sendPiece(batch)
      if (run.length >= runLength || open != null || isFull || !groups.hasNext) sendStates(batch)
    } while (open == null && !isFull && groups.hasNext)
  }

  private def isFull: Boolean = rows >= call.maxRecordsPerBatch || bytes >= call.maxBatchBytes

  /**
   * Returns the number of states that are read at once: few if they are large, so that they cannot outgrow the batch.
   */
  private def runLength: Long = math.max(1L, math.min(1024L, (call.maxBatchBytes - bytes) / largestState))

  /** Sends the next group, or the next piece of one that is too large; `open` is the group that continues. */
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
  }

  private def sendRows(groupRows: Iterator[InternalRow], batch: GroupBatch): Boolean = {
    var pieceBytes = 0L
    var pieceRows = 0
    var room = true
    while (room && groupRows.hasNext) {
      val row = groupRows.next() match {
        case unsafe: UnsafeRow => unsafe
        case other => unsafeRow(other)
      }
      batch.addRow(row)
      pieceBytes += row.getSizeInBytes
      pieceRows += 1
      room =
        if (asSparkCuts) rows + pieceRows < call.maxRecordsPerBatch
        else pieceBytes < call.maxGroupBytes
    }
    bytes += pieceBytes
    rows += math.max(pieceRows, 1)
    groupRows.hasNext
  }

  /** Sends the states of the groups that began since the last run. */
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

/**
 * A group of a pass.
 *
 * @param key the grouping columns; the group owns them
 * @param rows the group's rows, to be drained before the next group is taken; empty if the group timed out
 * @param state the state row, if the pass has read it; `None`: to be read from the store
 */
private[vectorized] case class Group(key: UnsafeRow, rows: Iterator[InternalRow], state: Option[UnsafeRow])

/**
 * The keys of groups that were sent to the worker and have not come back. Groups are numbered from 0 in the order in
 * which they were sent, and come back in that order, so the numbers stand for the keys in the stream.
 */
private[vectorized] class PendingKeys {
  private val keys = new ArrayDeque[UnsafeRow]
  private var first = 0L

  def add(key: UnsafeRow): Unit = keys.addLast(key)

  /** Returns the key of a group, and forgets the groups before it, which are done. */
  def advanceTo(number: Long): UnsafeRow = {
    forgetBefore(number)
    keys.peekFirst()
  }

  /** Forgets the groups numbered below `number`. */
  def forgetBefore(number: Long): Unit = while (first < number) {
    keys.removeFirst()
    first += 1
  }
}
