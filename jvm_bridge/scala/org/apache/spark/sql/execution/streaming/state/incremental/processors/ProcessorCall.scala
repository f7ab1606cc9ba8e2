package org.apache.spark.sql.execution.streaming.state.incremental.processors

import java.io.ByteArrayOutputStream
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.charset.StandardCharsets.{US_ASCII, UTF_8}

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.api.python.{ChainedPythonFunctions, PythonFunction, SimplePythonFunction}
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json
import org.apache.spark.sql.types.StructType

/**
 * The call of a processor in one batch, which its tasks have in common. It goes from the driver to the tasks.
 *
 * @param function the pickled processor, as PySpark made it
 * @param inputAttributes the columns of the operator's child: the grouping columns, then the data
 * @param takesRows true if the processor takes rows, false if it takes pandas frames
 * @param maxStateRecords the largest number of entries that Spark's state server puts into one answer
 * @param maxMessageBytes the bytes after which an answer with state that was fetched in advance ends
 * @param maxGroupBytes bytes of rows up to which a processor of many groups gets a whole group
 */
private[processors] case class ProcessorCall(
    function: PythonFunction,
    resultId: Long,
    groupingAttributes: Seq[Attribute],
    inputAttributes: Seq[Attribute],
    takesRows: Boolean,
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
   * The columns that go to the worker, and the positions of the grouping columns among them. In Spark's order, grouping
   * columns that are no columns of the data come first.
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

  /** Returns the worker's function: the processor in the loop of `state_store`, with a header for this task. */
  def command(server: StateServer): Seq[(ChainedPythonFunctions, Long)] = {
    val header = Json.obj(
      "address" -> server.address,
      "secret" -> server.secret,
      "key" -> Json.parse(keyType.json),
      "key_offsets" -> keyOffsets.mkString(","),
      "first_value" -> (sentAttributes.length - inputAttributes.length + groupingAttributes.length),
      "of_rows" -> takesRows,
      "batch_time_ms" -> batchTimestampMs.getOrElse(-1L),
      "watermark_ms" -> watermarkMs.getOrElse(-1L),
      "time_zone" -> timeZoneId,
      "max_records" -> maxRecords,
      "max_bytes" -> maxBytes,
      "max_state_records" -> maxStateRecords,
      "max_group_bytes" -> maxGroupBytes,
      "runner" -> runnerConf).toString
    val wrapped = SimplePythonFunction(
      PickledCall("state_store.functions.processors.processor_loop", "processor_command", function.command.toArray,
        header),
      function.envVars, function.pythonIncludes, function.pythonExec, function.pythonVer, function.broadcastVars,
      function.accumulator)
    Seq((ChainedPythonFunctions(Seq(wrapped)), resultId))
  }
}

/** A writer of pickles (protocol 3) that call a Python function when they are loaded. */
private[incremental] object PickledCall {

  /**
   * Returns the pickle of a call.
   *
   * @param module the module of the function
   * @param function the name of the function in the module
   * @param data the first argument, as `bytes`
   * @param texts the further arguments, as `str`
   */
  def apply(module: String, function: String, data: Array[Byte], texts: String*): Seq[Byte] = {
    val out = new ByteArrayOutputStream(data.length + 96 + texts.map(_.length).sum)
    out.write(Array(0x80.toByte, 3.toByte)) // PROTO 3
    out.write(s"c$module\n$function\n".getBytes(US_ASCII)) // GLOBAL
    out.write('(') // MARK
    write(out, 'B', data) // BINBYTES
    texts.foreach(text => write(out, 'X', text.getBytes(UTF_8))) // BINUNICODE
    out.write(Array('t'.toByte, 'R'.toByte, '.'.toByte)) // TUPLE, REDUCE, STOP
    out.toByteArray.toSeq
  }

  private def write(out: ByteArrayOutputStream, opcode: Char, data: Array[Byte]): Unit = {
    out.write(opcode)
    out.write(ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(data.length).array())
    out.write(data)
  }
}
