package org.apache.spark.sql.execution.streaming.state.incremental.vectorized

import org.apache.spark.sql.Row
import org.apache.spark.sql.api.python.PythonSQLUtils
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder
import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.execution.streaming.state.incremental.release.Lookups
import org.apache.spark.sql.execution.streaming.state.incremental.release.SparkNames.StateManager
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnarArray, ColumnarBatch}

/**
 * The changes that the worker sends back: writes the changed states to the store and passes on the output rows.
 *
 * A batch from the worker has one row, whose columns are lists of their own lengths:
 * {{{
 *   done     bigint              groups with lower numbers are finished
 *   output   array<struct>       output rows
 *   group    array<bigint>       numbers of the changed groups, ascending
 *   change   array<tinyint>      the kind of each change, see the companion
 *   timeout  array<bigint>       its new timeout in ms, -1 for none
 *   state    array<struct>       the new state of each group that is put, in order
 *                                (array<binary> if pickled)
 * }}}
 */
private[vectorized] class StateChanges(
    call: GroupsCall,
    store: StateStore,
    stateManager: StateManager,
    encoder: ExpressionEncoder[Row],
    pending: PendingKeys,
    metrics: GroupMetrics) {
  import StateChanges._

  private val stateLength = call.stateType.length
  private val outLength = call.outAttributes.length
  private val stateRow = UnsafeProjection.create(stateManager.stateSchema)
  private val outRow = UnsafeProjection.create(call.outType)
  private val value = new GenericInternalRow(stateManager.stateSchema.length)
  private lazy val rowToState = encoder.createDeserializer()

  /**
   * Applies the changes of a batch.
   *
   * @return its output rows, each valid until the next one is read
   */
  def applyAndEmit(batch: ColumnarBatch): Iterator[InternalRow] = {
    val column = batch.column(0).asInstanceOf[ArrowColumnVector]
    applyChanges(column)
    pending.forgetBefore(column.getChild(0).getLong(0))
    val rows = column.getChild(1).getArray(0)
    val count = rows.numElements()
    metrics.python("pythonNumRowsReceived") += count - 1
    Iterator.range(0, count).map { i =>
      metrics.outputRows += 1
      outRow(rows.getStruct(i, outLength))
    }
  }

  private def applyChanges(column: ArrowColumnVector): Unit = {
    val groups = column.getChild(2).getArray(0)
    val changes = column.getChild(3).getArray(0)
    val timeouts = column.getChild(4).getArray(0)
    val states = column.getChild(5).getArray(0)
    var nextState = 0
    var i = 0
    while (i < groups.numElements()) {
      val key = pending.advanceTo(groups.getLong(i))
      val timeout = timeouts.getLong(i)
      changes.getByte(i) match {
        case Put =>
          put(key, states, nextState, timeout)
          nextState += 1
        case Keep => keep(key, timeout)
        case Clear => write(key, null, timeout)
        case Remove =>
          store.remove(key)
          metrics.removedStates += 1
      }
      i += 1
    }
  }

  private def put(key: UnsafeRow, states: ColumnarArray, index: Int, timeoutMs: Long): Unit =
    if (call.mode.pickledStates) {
      val row = PythonSQLUtils.toJVMRow(states.getBinary(index), call.stateType, rowToState)
      stateManager.putState(store, key, row, timeoutMs)
      metrics.updatedStates += 1
    } else {
      write(key, states.getStruct(index, stateLength), timeoutMs)
    }

  private def keep(key: UnsafeRow, timeoutMs: Long): Unit = {
    val stored = store.get(key)
    if (stored == null) write(key, null, timeoutMs)
    else write(key, if (stored.isNullAt(0)) null else stored.getStruct(0, stateLength), timeoutMs)
  }

  private def write(key: UnsafeRow, state: InternalRow, timeoutMs: Long): Unit = {
    value.update(StateReader.StateOrdinal, state)
    if (call.hasTimeout) value.update(StateReader.TimeoutOrdinal, timeoutMs)
    store.put(key, stateRow(value))
    metrics.updatedStates += 1
  }
}

private[vectorized] object StateChanges {
  /** The group gets a new state and the timeout. */
  private final val Put: Byte = 0

  /** The group keeps its state, if it has one, and gets the timeout. */
  private final val Keep: Byte = 1

  /** The state is removed; the group stays for its timeout. */
  private final val Clear: Byte = 2

  /** The group is removed. */
  private final val Remove: Byte = 3
}

/**
 * A reader of states in runs: one `multiGet` for the keys of many groups if the store has this call, else single gets.
 */
private[vectorized] class StateReader(store: StateStore) {
  private var hasMultiGet = true

  /**
   * Returns the state rows of keys, in their order; null for a key without state. Each is valid until the next one is
   * read.
   */
  def read(keys: Array[UnsafeRow]): Iterator[UnsafeRow] =
    if (hasMultiGet && keys.length > 1) multiGet(keys) else keys.iterator.map(key => store.get(key))

  private def multiGet(keys: Array[UnsafeRow]): Iterator[UnsafeRow] =
    try Lookups.multiGet(store, keys)
    catch {
      case _: UnsupportedOperationException =>
        hasMultiGet = false
        read(keys)
    }
}

private[vectorized] object StateReader {
  /**
   * The positions of the user's state (a nullable struct) and of the timeout (ms, or -1) in a state row of format 2.
   */
  val StateOrdinal = 0
  val TimeoutOrdinal = 1
}
