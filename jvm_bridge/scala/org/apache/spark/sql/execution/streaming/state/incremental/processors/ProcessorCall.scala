package org.apache.spark.sql.execution.streaming.state.incremental.processors

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.api.python.{ChainedPythonFunctions, PythonFunction, SimplePythonFunction}
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json
import org.apache.spark.sql.types.StructType

/**
 * What the tasks of one processor in one batch have in common. Goes from the driver to the tasks.
 *
 * @param function the pickled processor, as PySpark made it
 * @param inputAttributes the columns of the operator's child: the grouping columns, then the data
 * @param ofRows whether the processor takes rows; otherwise pandas frames
 * @param maxStateRecords the most entries that Spark's state server puts into one answer
 * @param maxMessageBytes bytes after which an answer with state that was asked for in advance ends
 * @param maxGroupBytes bytes of rows up to which a processor of many groups gets a group
 */
private[processors] case class ProcessorCall(
    function: PythonFunction,
    resultId: Long,
    groupingAttributes: Seq[Attribute],
    inputAttributes: Seq[Attribute],
    ofRows: Boolean,
    batchTimestampMs: Option[Long],
    watermarkMs: Option[Long],
    timeZoneId: String,
    largeVarTypes: Boolean,
    maxRecords: Int,
    maxBytes: Long,
    maxStateRecords: Int,
    maxMessageBytes: Long,
    maxGroupBytes: Long,
    runnerConf: Map[String, String],
    jobArtifactUUID: Option[String]) {

  val keyType: StructType = DataTypeUtils.fromAttributes(groupingAttributes)

  /**
   * The columns that go to the worker, and where the grouping columns are among them: Spark's order, in which
   * grouping columns that are no columns of the data come first.
   */
  val (sentAttributes: Seq[Attribute], keyOffsets: Seq[Int]) = {
    val data = inputAttributes.drop(groupingAttributes.length)
    val inData = groupingAttributes.map(key => data.indexWhere(key.semanticEquals))
    val alone = new ArrayBuffer[Attribute]
    val aloneCount = inData.count(_ == -1)
    val offsets = groupingAttributes.zip(inData).map {
      case (key, -1) =>
        alone += key
        alone.length - 1
      case (_, index) => index + aloneCount
    }
    (alone.toSeq ++ data, offsets)
  }

  val sentType: StructType = DataTypeUtils.fromAttributes(sentAttributes)

  /** The layout of the stream to the worker: one struct column, as an Arrow iterator function gets it. */
  val inputType: StructType = new StructType().add("rows", sentType)

  /** The worker's function: the processor in the loop of `state_store`, with what one task tells it. */
  def command(server: StateServer): Seq[(ChainedPythonFunctions, Long)] = {
    val header = Json.obj(
      "address" -> server.address,
      "secret" -> server.secret,
      "key" -> Json.parse(keyType.json),
      "key_offsets" -> keyOffsets.mkString(","),
      "first_value" -> (sentAttributes.length - inputAttributes.length + groupingAttributes.length),
      "of_rows" -> ofRows,
      "batch_time_ms" -> batchTimestampMs.getOrElse(-1L),
      "watermark_ms" -> watermarkMs.getOrElse(-1L),
      "time_zone" -> timeZoneId,
      "max_records" -> maxRecords,
      "max_bytes" -> maxBytes,
      "max_state_records" -> maxStateRecords,
      "max_group_bytes" -> maxGroupBytes,
      "runner" -> runnerConf).toString
    val wrapped = SimplePythonFunction(
      PickledCall("state_store.functions.processors.loop", "processor_command", function.command.toArray, header),
      function.envVars, function.pythonIncludes, function.pythonExec, function.pythonVer, function.broadcastVars,
      function.accumulator)
    Seq((ChainedPythonFunctions(Seq(wrapped)), resultId))
  }
}
