package org.apache.spark.sql.execution.streaming.state.incremental.processors

import java.io.DataOutputStream
import java.nio.channels.Channels

import org.apache.arrow.vector.{VectorSchemaRoot, VectorUnloader}
import org.apache.arrow.vector.ipc.{ArrowStreamWriter, WriteChannel}
import org.apache.arrow.vector.ipc.message.MessageSerializer

import org.apache.spark.api.python.PythonEvalType
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.arrow.ArrowWriter
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.streaming.state.incremental.release.SerialArrowRunner

/**
 * Sends the rows of a partition to an ordinary Arrow iterator worker, the one that serves `mapInArrow`, in batches
 * like those of Spark's own runner of processors, and uncompressed as there.
 *
 * @param rows in the layout of the call's `sentType`
 */
private[processors] class RowsRunner(
    call: ProcessorCall, server: StateServer, rows: Iterator[InternalRow], metrics: Map[String, SQLMetric])
  extends SerialArrowRunner(
    call.command(server), PythonEvalType.SQL_MAP_ARROW_ITER_UDF, call.inputType, call.timeZoneId,
    call.largeVarTypes, call.runnerConf, metrics, call.jobArtifactUUID) {

  private var batch: ArrowWriter = _
  private var unloadUncompressed: VectorUnloader = _
  private val struct = new org.apache.spark.sql.catalyst.expressions.GenericInternalRow(1)

  override protected def writeNextBatchToArrowStream(
      root: VectorSchemaRoot,
      writer: ArrowStreamWriter,
      out: DataOutputStream,
      unused: Iterator[Iterator[InternalRow]]): Boolean =
    if (rows.hasNext) {
      if (batch == null) {
        batch = ArrowWriter.create(root)
        unloadUncompressed = new VectorUnloader(root)
      }
      val before = out.size()
      fill()
      batch.finish()
      send(out)
      batch.reset()
      metrics("pythonDataSent") += out.size() - before
      true
    } else {
      close()
      false
    }

  private def fill(): Unit = {
    var count = 0
    var bytes = 0L
    do {
      val row = rows.next()
      struct.update(0, row)
      batch.write(struct)
      count += 1
      row match {
        case unsafe: UnsafeRow => bytes += unsafe.getSizeInBytes
        case _ =>
      }
    } while (count < call.maxRecords && bytes < call.maxBytes && rows.hasNext)
  }

  private def send(out: DataOutputStream): Unit = {
    val message = unloadUncompressed.getRecordBatch()
    try MessageSerializer.serialize(new WriteChannel(Channels.newChannel(out)), message)
    finally message.close()
  }
}
