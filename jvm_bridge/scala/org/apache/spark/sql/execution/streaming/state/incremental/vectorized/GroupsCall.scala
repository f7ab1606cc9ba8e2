package org.apache.spark.sql.execution.streaming.state.incremental.vectorized

import org.apache.spark.api.python.ChainedPythonFunctions
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.{EventTimeTimeout, ProcessingTimeTimeout}
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json
import org.apache.spark.sql.streaming.GroupStateTimeout
import org.apache.spark.sql.types._

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
 *   state    struct | binary     null without state; binary: pickled as by Spark's own operator
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
    timeZoneId: String,
    largeVarTypes: Boolean,
    maxRecordsPerBatch: Int,
    maxBatchBytes: Long,
    maxGroupBytes: Long,
    runnerConf: Map[String, String],
    jobArtifactUUID: Option[String]) {

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
    "time_zone" -> timeZoneId,
    "large_types" -> largeVarTypes,
    "max_records" -> maxRecordsPerBatch,
    "runner" -> runnerConf).toString
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
