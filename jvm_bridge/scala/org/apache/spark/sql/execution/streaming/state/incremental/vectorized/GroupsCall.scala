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
 * What the calls of one function in one batch have in common. Goes from the driver to the tasks.
 *
 * The stream to the Python worker has one row per group, in this layout; names inside `key`, `state` and
 * `rows` are positions, because the columns of a user may bear any name: the header tells the real ones.
 * {{{
 *   header   string              the stream's header as JSON, in its first row only
 *   flags    tinyint             1: the group began in the batch before, 2: it goes on in the batch after
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

  /** The layout above, as the one struct column that an Arrow iterator function gets. */
  val inputType: StructType = new StructType().add("groups", new StructType()
    .add("header", StringType)
    .add("flags", ByteType)
    .add("timeout", LongType)
    .add("key", GroupsCall.positional(keyType))
    .add("state", if (mode.pickledStates) BinaryType else GroupsCall.positional(stateType))
    .add("rows", ArrayType(GroupsCall.positional(rowType), containsNull = false)))

  val hasTimeout: Boolean = timeoutConf == ProcessingTimeTimeout || timeoutConf == EventTimeTimeout

  /** Groups whose stored timeout lies before this moment have timed out. */
  def timeoutThresholdMs: Long =
    if (timeoutConf == ProcessingTimeTimeout) batchTimestampMs.get else watermarkMs.get

  /** The header of a stream; `timedOut` tells the pass over timed-out groups from that over rows. */
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
  /** Stands for "no timestamp" in states and streams alike. */
  val NoTimestamp: Long = -1L

  private def positional(t: StructType): StructType =
    StructType(t.fields.zipWithIndex.map { case (f, i) =>
      StructField(i.toString, f.dataType, nullable = true, f.metadata)
    })
}
