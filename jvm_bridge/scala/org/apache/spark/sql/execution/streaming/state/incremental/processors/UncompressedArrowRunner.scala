package org.apache.spark.sql.execution.streaming.state.incremental.processors

import java.io.DataOutputStream
import java.net.{InetSocketAddress, StandardSocketOptions}
import java.nio.channels.{Channels, SocketChannel}

import org.apache.arrow.vector.{VectorSchemaRoot, VectorUnloader}
import org.apache.arrow.vector.ipc.{ArrowStreamWriter, WriteChannel}
import org.apache.arrow.vector.ipc.message.MessageSerializer

import org.apache.spark.{SparkEnv, TaskContext}
import org.apache.spark.api.python.{ChainedPythonFunctions, PythonEvalType, PythonWorker}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.streaming.state.incremental.release.SerialArrowRunner
import org.apache.spark.sql.types.StructType

/**
 * A runner that sends batches to an ordinary Arrow iterator worker, the one that serves `mapInArrow`. It does not use
 * the input iterator of `compute`.
 *
 * The batches are never compressed, for any `spark.sql.execution.arrow.compression.codec`: Spark's own operators of
 * stateful functions do not compress either, and PyArrow refuses the buffers without bytes that Arrow's Java library
 * makes with a codec (apache/arrow-java#1196).
 */
private[incremental] abstract class UncompressedArrowRunner(
    functions: Seq[(ChainedPythonFunctions, Long)],
    schema: StructType,
    timeZoneId: String,
    largeVarTypes: Boolean,
    runnerConf: Map[String, String],
    metrics: Map[String, SQLMetric],
    jobArtifactUUID: Option[String])
    extends SerialArrowRunner(
      functions, PythonEvalType.SQL_MAP_ARROW_ITER_UDF, schema, timeZoneId, largeVarTypes, runnerConf, metrics,
      jobArtifactUUID) {

  private var uncompressed: VectorUnloader = _

  override protected def newWriter(
      env: SparkEnv,
      worker: PythonWorker,
      input: Iterator[Iterator[InternalRow]],
      partition: Int,
      context: TaskContext): Writer = {
    sendAtOnce(worker.channel)
    super.newWriter(env, worker, input, partition, context)
  }

  /**
   * Sends small writes at once. Spark writes the function and the first batch one after the other; by Nagle's algorithm
   * the second waits until the worker has acknowledged the first, which takes the kernel up to 40 ms.
   */
  private def sendAtOnce(channel: SocketChannel): Unit =
    if (channel.getRemoteAddress.isInstanceOf[InetSocketAddress])
      channel.setOption[java.lang.Boolean](StandardSocketOptions.TCP_NODELAY, true)

  /** Returns true if there is another batch. */
  protected def hasBatch: Boolean

  /**
   * Fills the vectors with the next batch.
   *
   * @param root the vectors, empty, and the same in each call
   */
  protected def fill(root: VectorSchemaRoot): Unit

  /** Empties the vectors, whose batch was sent. */
  protected def reset(): Unit

  override protected final def writeNextBatchToArrowStream(
      root: VectorSchemaRoot,
      writer: ArrowStreamWriter,
      out: DataOutputStream,
      unused: Iterator[Iterator[InternalRow]]): Boolean =
    if (hasBatch) {
      if (uncompressed == null) uncompressed = new VectorUnloader(root)
      val before = out.size()
      fill(root)
      send(out)
      reset()
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
