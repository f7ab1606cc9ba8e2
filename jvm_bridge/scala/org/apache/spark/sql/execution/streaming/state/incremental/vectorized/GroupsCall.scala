package org.apache.spark.sql.execution.streaming.state.incremental.vectorized

import java.util.ArrayDeque

import scala.collection.mutable.ArrayBuffer

import org.apache.arrow.vector.{BigIntVector, TinyIntVector, ValueVector, VectorSchemaRoot}
import org.apache.arrow.vector.complex.{ListVector, StructVector}

import org.apache.spark.TaskContext
import org.apache.spark.api.python.ChainedPythonFunctions
import org.apache.spark.sql.Row
import org.apache.spark.sql.api.python.PythonSQLUtils
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder
import org.apache.spark.sql.catalyst.expressions.{
  Attribute, GenericInternalRow, GenericRowWithSchema, SpecializedGetters, UnsafeProjection, UnsafeRow
}
import org.apache.spark.sql.catalyst.plans.logical.{EventTimeTimeout, ProcessingTimeTimeout}
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes
import org.apache.spark.sql.execution.GroupedIterator
import org.apache.spark.sql.execution.arrow.ArrowWriter
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json
import org.apache.spark.sql.execution.streaming.state.incremental.processors.UncompressedArrowRunner
import org.apache.spark.sql.execution.streaming.state.incremental.release.{ArrowTypes, Lookups, WorkerSettings}
import org.apache.spark.sql.execution.streaming.state.incremental.release.SparkNames.StateManager
import org.apache.spark.sql.streaming.GroupStateTimeout
import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnarArray, ColumnarBatch}
import org.apache.spark.unsafe.types.UTF8String

// A vectorised call, in the order in which it runs: its settings, the pass over a partition, the groups and batches
// that go to the worker, and the changes of state that come back.

/**
 * The calls of one function in one batch: their settings, which go from the driver to the tasks.
 *
 * The stream to the Python worker has one row per group, in this layout. The names inside `key`, `state` and `rows` are
 * positions, because the columns of a user may have any name; the header has the real names.
 * {{{
 *   header   string              the stream's header as JSON, in its first row only
 *   flags    tinyint             1: the group began in the batch before, 2: it continues in the batch after
 *   timeout  bigint              the stored timeout in ms, -1 without
 *   key      struct
 *   state    struct | binary     null without state; binary: those of a run of groups, see PickledStates
 *   rows     array<struct>       empty for a group that timed out
 * }}}
 */
private[vectorized] case class GroupsCall(
    function: Seq[(ChainedPythonFunctions, Long)],
    mode: GroupsMode,
    groupingAttributes: Seq[Attribute],
    rowAttributes: Seq[Attribute],
    stateType: StructType,
    outAttributes: Seq[Attribute],
    timeoutConf: GroupStateTimeout,
    batchTimestampMs: Option[Long],
    watermarkMs: Option[Long],
    watermarkPresent: Boolean,
    settings: WorkerSettings,
    maxBatchBytes: Long,
    maxGroupBytes: Long) {

  private val keyType = DataTypeUtils.fromAttributes(groupingAttributes)
  val rowType: StructType = DataTypeUtils.fromAttributes(rowAttributes)
  val outType: StructType = DataTypeUtils.fromAttributes(outAttributes)

  /** The layout of the stream, as the one struct column that an Arrow iterator function gets. */
  val inputType: StructType = new StructType().add("groups",
    new StructType()
      .add("header", StringType)
      .add("flags", ByteType)
      .add("timeout", LongType)
      .add("key", GroupsCall.positional(keyType))
      .add("state", if (mode.pickledStates) BinaryType else GroupsCall.positional(stateType))
      .add("rows", ArrayType(GroupsCall.positional(rowType), containsNull = false)))

  /** The rows after which a batch ends. For functions in Spark's own form a frame ends, too, as in Spark's operator. */
  val maxRecords: Int = if (mode.pickledStates) settings.frameRecords else settings.maxRecords

  val hasTimeout: Boolean = timeoutConf == ProcessingTimeTimeout || timeoutConf == EventTimeTimeout

  /** The moment before which the stored timeout of a timed-out group lies. */
  def timeoutThresholdMs: Long =
    if (timeoutConf == ProcessingTimeTimeout) batchTimestampMs.get else watermarkMs.get

  /**
   * Returns the header of a stream; `timedOut` is true for the pass over timed-out groups, false for the pass over
   * rows.
   */
  def header(timedOut: Boolean): String = Json.obj(
    "key" -> Json.parse(keyType.json),
    "rows" -> Json.parse(rowType.json),
    "state" -> Json.parse(stateType.json),
    "output" -> Json.parse(StructType(outAttributes.map(a => StructField(a.name, a.dataType, a.nullable))).json),
    "timeout_conf" -> timeoutConf.toString,
    "timed_out" -> timedOut,
    "batch_time_ms" -> batchTimestampMs.getOrElse(GroupsCall.NoTimestamp),
    "watermark_ms" -> watermarkMs.getOrElse(GroupsCall.NoTimestamp),
    "watermark_present" -> watermarkPresent,
    "max_group_bytes" -> maxGroupBytes,
    "time_zone" -> settings.timeZoneId,
    "large_types" -> settings.largeVarTypes,
    "max_records" -> maxRecords,
    "runner" -> settings.runnerConf).toString
}

private[vectorized] object GroupsCall {
  /** The value that means "no timestamp" in states and streams. */
  val NoTimestamp: Long = -1L

  private def positional(t: StructType): StructType =
    StructType(t.fields.zipWithIndex.map { case (f, i) =>
      StructField(i.toString, f.dataType, nullable = true, f.metadata)
    })
}

/**
 * The form in which a marked function takes its groups. The mark is the name under which the function is in the plan:
 * only a function's name reaches the planner on every way, Spark Connect included.
 */
private[vectorized] sealed trait GroupsMode extends Serializable {
  /** True if states are sent pickled, as by Spark's own operator; false if as Arrow columns. */
  def pickledStates: Boolean
}

private[vectorized] object GroupsMode {
  /**
   * Many groups at a time: rows and states are Arrow columns. The worker calls the function once for all groups, or for
   * each group with values that it makes of the columns.
   */
  case object Vectorized extends GroupsMode { override val pickledStates = false }

  /** A call for each group, of a function in Spark's own form. */
  case object Accelerated extends GroupsMode { override val pickledStates = true }

  /** Returns the mode of a function with this name; None if the name has no mark. */
  def of(name: String): Option[GroupsMode] =
    if (!name.endsWith(")")) None
    else if (name.startsWith("state_store.vectorized(") || name.startsWith("state_store.per_group("))
      Some(Vectorized)
    else if (name.startsWith(AcceleratedPrefix)) Some(Accelerated)
    else None

  /** Returns the marked name of an ordinary function. */
  def acceleratedName(name: String): String = s"$AcceleratedPrefix$name)"

  private val AcceleratedPrefix = "state_store.accelerate("
}

/**
 * A function's pass over the groups of one partition: first over those that have rows, then over those that timed out.
 *
 * Each pass is a stream to a Python worker and back; a pass without groups starts no worker. The returned iterators
 * work when they are drained, on the task's thread alone, which is the only thread that uses the store.
 */
private[vectorized] class GroupsPartition(
    call: GroupsCall,
    store: StateStore,
    stateManager: StateManager,
    stateEncoder: ExpressionEncoder[Any],
    metrics: GroupMetrics) {

  ArrowTypes.failDuplicatedFieldNames(call.rowType)

  private lazy val encoder = stateEncoder.asInstanceOf[ExpressionEncoder[Row]]
  private lazy val states = new StateReader(store)

  /** Calls the function for the groups of `rows`, which are sorted by the grouping columns. */
  def withRows(rows: Iterator[InternalRow]): Iterator[InternalRow] = {
    val groups = GroupedIterator(rows, call.groupingAttributes, call.rowAttributes).map {
      case (key, groupRows) => Group(key.asInstanceOf[UnsafeRow].copy(), groupRows, None)
    }
    run(groups, timedOut = false)
  }

  /** Calls the function for the groups whose stored timeout has passed. */
  def timedOut(): Iterator[InternalRow] = {
    val threshold = call.timeoutThresholdMs
    val groups = store.iterator().filter { pair =>
      val timeout = pair.value.getLong(StateReader.TimeoutOrdinal)
      timeout != GroupsCall.NoTimestamp && timeout < threshold
    }.map(pair => Group(pair.key.copy(), Iterator.empty, Some(pair.value.copy())))
    run(groups, timedOut = true)
  }

  private def run(groups: Iterator[Group], timedOut: Boolean): Iterator[InternalRow] =
    if (!groups.hasNext) Iterator.empty
    else {
      val context = TaskContext.get()
      val pending = new PendingKeys
      val source = new GroupSource(call, groups, states, pending, encoder)
      val changes = new StateChanges(call, store, stateManager, encoder, pending, metrics)
      new GroupsRunner(call, source, call.header(timedOut), metrics.python)
        .compute(Iterator.empty, context.partitionId(), context)
        .flatMap(changes.applyAndEmit)
    }
}

/** A runner that sends groups to the worker. [[StateChanges]] reads the batches that come back. */
private[vectorized] class GroupsRunner(call: GroupsCall, source: GroupSource, header: String,
    metrics: Map[String, SQLMetric])
    extends UncompressedArrowRunner(call.function, call.inputType, call.settings, metrics) {

  private var batch: GroupBatch = _

  override protected def hasBatch: Boolean = source.hasNext

  override protected def fill(root: VectorSchemaRoot): Unit = {
    if (batch == null) batch = new GroupBatch(root, header)
    source.fill(batch)
    batch.finish()
  }

  override protected def reset(): Unit = batch.reset()
}

/** The metrics that a partition of the operator counts; `python` are the worker's, by Spark's names. */
private[vectorized] case class GroupMetrics(
    outputRows: SQLMetric,
    updatedStates: SQLMetric,
    removedStates: SQLMetric,
    python: Map[String, SQLMetric])

/**
 * A source that packs groups into Arrow batches: whole groups while a batch has room, and a group in pieces if it alone
 * is larger than the limit for groups. The two limits together bound the memory of a batch for any data.
 *
 * For functions in Spark's own form the pieces are those of Spark's operator: a group ends a piece where its rows,
 * counted over all groups, fill a batch of `maxRecords`.
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
  private val timeouts = new ArrayBuffer[Long]
  private lazy val unsafeRow = UnsafeProjection.create(call.rowType)
  private lazy val pickled = new PickledStates(call.stateType, encoder)

  def hasNext: Boolean = open != null || groups.hasNext

  /** Fills a batch with the next groups; there must be at least one. */
  def fill(batch: GroupBatch): Unit = {
    bytes = 0
    if (!asSparkCuts || rows >= call.maxRecords) rows = 0
    do {
      sendPiece(batch)
      if (run.length >= runLength || open != null || isFull || !groups.hasNext) sendStates(batch)
    } while (open == null && !isFull && groups.hasNext)
  }

  private def isFull: Boolean = rows >= call.maxRecords || bytes >= call.maxBatchBytes

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
        if (asSparkCuts) rows + pieceRows < call.maxRecords
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
      val hasState = row != null && !row.isNullAt(StateReader.StateOrdinal)
      if (!call.mode.pickledStates) batch.addState(if (hasState) row else GroupSource.NoState, timeout)
      else {
        pickled.add(if (hasState) row.getStruct(StateReader.StateOrdinal, call.stateType.length) else null)
        timeouts += timeout
      }
    }
    if (call.mode.pickledStates) sendPickled(batch)
    run.clear()
  }

  private def sendPickled(batch: GroupBatch): Unit = {
    batch.addState(pickled.take(), timeouts.head)
    timeouts.iterator.drop(1).foreach(batch.addState(GroupSource.NoState, _))
    timeouts.clear()
  }
}

private object GroupSource {
  private val NoState: InternalRow = new GenericInternalRow(1)
}

/**
 * States of consecutive groups as one value of the column `state`: a row with a list of them, pickled by Spark as it
 * pickles one state. Its pickler writes the schema of rows once a value, and so it is parsed once.
 */
private[vectorized] class PickledStates(stateType: StructType, encoder: ExpressionEncoder[Row]) {
  private val listType = new StructType().add("states", ArrayType(stateType))
  private val toRow = encoder.createDeserializer()
  private val rows = new ArrayBuffer[Row]
  private var anyState = false

  /** Adds the state of the next group; null for none. */
  def add(state: InternalRow): Unit = {
    rows += (if (state == null) null else toRow(state))
    anyState |= state != null
  }

  /** Returns a row with the value for the groups since the last call, null if none has a state. */
  def take(): InternalRow = {
    val value =
      if (!anyState) null
      else PythonSQLUtils.toPyRow(new GenericRowWithSchema(Array[Any](rows.toSeq), listType))
    rows.clear()
    anyState = false
    new GenericInternalRow(Array[Any](value))
  }
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
    // Spark's runner has counted the batch as one row.
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
