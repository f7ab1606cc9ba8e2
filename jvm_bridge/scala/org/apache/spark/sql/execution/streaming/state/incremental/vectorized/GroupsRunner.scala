package org.apache.spark.sql.execution.streaming.state.incremental.vectorized

import java.io.DataOutputStream
import java.nio.channels.Channels

import org.apache.arrow.vector.{VectorSchemaRoot, VectorUnloader}
import org.apache.arrow.vector.ipc.{ArrowStreamWriter, WriteChannel}
import org.apache.arrow.vector.ipc.message.MessageSerializer

import org.apache.spark.api.python.PythonEvalType
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.streaming.state.incremental.release.SerialArrowRunner

/**
 * Sends groups to an ordinary Arrow iterator worker, the one that serves `mapInArrow`. The input iterator
 * that `compute` takes is not used: the groups come from `source`, and the batches that come back are read by
 * [[StateChanges]].
 *
 * The batches are never compressed, whatever `spark.sql.execution.arrow.compression.codec` says: Spark's own
 * operator of these functions does not compress either, and PyArrow refuses the buffers without bytes that
 * Arrow's Java library makes with a codec (apache/arrow-java#1196).
 */
private[vectorized] class GroupsRunner(call: GroupsCall, source: GroupSource, header: String, metrics: Map[String, SQLMetric])
  extends SerialArrowRunner(
    call.function, PythonEvalType.SQL_MAP_ARROW_ITER_UDF, call.inputType, call.timeZoneId, call.largeVarTypes,
    call.runnerConf, metrics, call.jobArtifactUUID) {

  private var batch: GroupBatch = _
  private var uncompressed: VectorUnloader = _

  override protected def writeNextBatchToArrowStream(
      root: VectorSchemaRoot,
      writer: ArrowStreamWriter,
      out: DataOutputStream,
      unused: Iterator[Iterator[InternalRow]]): Boolean =
    if (source.hasNext) {
      if (batch == null) {
        batch = new GroupBatch(root, header)
        uncompressed = new VectorUnloader(root)
      }
      val before = out.size()
      source.fill(batch)
      batch.finish()
      send(out)
      batch.reset()
      metrics("pythonDataSent") += out.size() - before
      true
    } else {
      close()
      false
    }

  private def send(out: DataOutputStream): Unit = {
    val message = uncompressed.getRecordBatch()
    try MessageSerializer.serialize(new WriteChannel(Channels.newChannel(out)), message)
    finally message.close()
  }
}
