package org.apache.spark.sql.execution.streaming.state.incremental.processors

import java.util.concurrent.TimeUnit.NANOSECONDS

import scala.jdk.CollectionConverters._

import org.apache.arrow.vector.VectorSchemaRoot

import org.apache.spark.{JobArtifactSet, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{PythonUDF, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.arrow.ArrowWriter
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.python.ArrowPythonRunner
import org.apache.spark.sql.execution.streaming.state.{NoPrefixKeyStateEncoderSpec, StateStore, StateStoreOps}
import org.apache.spark.sql.execution.streaming.state.incremental.release.{ArrowTypes, ProcessorHandles}
import org.apache.spark.sql.execution.streaming.state.incremental.release.ProcessorHandles.PythonProcessorExec
import org.apache.spark.sql.execution.streaming.state.incremental.settings.OptionTexts
import org.apache.spark.sql.streaming.TimeMode
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnarBatch}
import org.apache.spark.util.{CompletionIterator, ThreadUtils}

/**
 * Spark's operator of `transformWithState` in Python, except that one message between the worker and the JVM carries
 * the state of many groups. The user's processor, its calls and their order stay.
 *
 * Distribution, ordering, late rows, schemas of state, timers, times to live, metrics and the commit stay Spark's.
 */
private[processors] trait BatchedProcessor extends PythonProcessorExec with ReplacedOperator {

  /** The call that the tasks get, made of the session's settings here, on the driver. */
  private lazy val call: ProcessorCall = {
    val udf = functionExpr.asInstanceOf[PythonUDF]
    ProcessorCall(
      function = udf.func,
      resultId = udf.resultId.id,
      groupingAttributes = groupingAttributes,
      inputAttributes = child.output,
      takesRows = ProcessorHandles.takesRows(this),
      batchTimestampMs = batchTimestampMs,
      watermarkMs = eventTimeWatermarkForEviction,
      timeZoneId = conf.sessionLocalTimeZone,
      largeVarTypes = conf.arrowUseLargeVarTypes,
      maxRecords = if (conf.arrowMaxRecordsPerBatch > 0) conf.arrowMaxRecordsPerBatch else Int.MaxValue,
      maxBytes = ProcessorHandles.maxBytesPerBatch(conf),
      maxStateRecords = ProcessorHandles.maxStateRecords(conf),
      maxMessageBytes = OptionTexts.of(conf).bytes("vectorized.maxBatchBytes"),
      maxGroupBytes = OptionTexts.of(conf).bytes("vectorized.maxGroupBytes"),
      runnerConf = ArrowPythonRunner.getPythonRunnerConfMap(conf),
      jobArtifactUUID = JobArtifactSet.getCurrentJobArtifactState.map(_.uuid))
  }

  /** Sets the metrics of the store, as the release of Spark does. */
  protected def setMetricsOf(store: StateStore): Unit

  override def nodeName: String = "BatchedTransformWithStateInPySpark"

  override protected def doExecute(): RDD[InternalRow] = {
    metrics
    call
    child.execute().mapPartitionsWithStateStore[InternalRow](
      getStateInfo, schemaForKeyRow, schemaForValueRow, NoPrefixKeyStateEncoderSpec(schemaForKeyRow),
      session.sqlContext.sessionState, Some(session.streams.stateStoreCoordinator),
      useColumnFamilies = true, useMultipleValuesPerKey = true) {
      (store: StateStore, rows: Iterator[InternalRow]) => process(store, rows)
    }
  }

  private def process(store: StateStore, rows: Iterator[InternalRow]): Iterator[InternalRow] = {
    val start = System.nanoTime
    countReplaced()
    ArrowTypes.failDuplicatedFieldNames(call.sentType)
    val keys = new WorkerRowCodec(call.keyType)
    val handle = ProcessorHandles.make(this, store, getStateInfo.queryRunId, keys.keyEncoder, metrics)
    val server = new StateServer(new StateAnswers(handle, keys, call.maxMessageBytes))
    serve(server)
    val projection = UnsafeProjection.create(call.sentAttributes, child.output)
    val runner = new RowsRunner(call, server, withoutLate(rows).map(projection), pythonMetrics)
    val context = TaskContext.get()
    val outputRow = UnsafeProjection.create(output, output)
    val numOutputRows = longMetric("numOutputRows")
    val results = runner.compute(Iterator.empty, context.partitionId(), context).flatMap(rowsOf).map { row =>
      numOutputRows += 1
      outputRow(row)
    }
    CompletionIterator[InternalRow, Iterator[InternalRow]](results, {
        longMetric("allUpdatesTimeMs") += NANOSECONDS.toMillis(System.nanoTime - start)
        longMetric("commitTimeMs") += timeTakenMs {
          handle.doTtlCleanup()
          store.commit()
        }
        setMetricsOf(store)
        setOperatorMetrics()
      })
  }

  private def withoutLate(rows: Iterator[InternalRow]): Iterator[InternalRow] =
    watermarkPredicateForDataForLateEvents match {
      case Some(predicate) if timeMode == TimeMode.EventTime() => applyRemovingRowsOlderThanWatermark(rows, predicate)
      case _ => rows
    }

  private def serve(server: StateServer): Unit = {
    val thread = ThreadUtils.newDaemonSingleThreadExecutor("state of a processor")
    TaskContext.get().addTaskCompletionListener[Unit] { _ =>
      thread.shutdownNow()
      server.close()
    }
    StateServer.start(server, thread)
  }

  private def rowsOf(batch: ColumnarBatch): Iterator[InternalRow] = {
    val struct = batch.column(0).asInstanceOf[ArrowColumnVector]
    val flat = new ColumnarBatch(output.indices.map(struct.getChild).toArray)
    flat.setNumRows(batch.numRows())
    flat.rowIterator.asScala
  }
}

/**
 * A runner that sends the rows of a partition to the worker, in batches like those of Spark's own runner of processors.
 *
 * @param rows the rows, in the layout of the call's `sentType`
 */
private[processors] class RowsRunner(
    call: ProcessorCall, server: StateServer, rows: Iterator[InternalRow], metrics: Map[String, SQLMetric])
    extends UncompressedArrowRunner(
      call.command(server), call.inputType, call.timeZoneId, call.largeVarTypes, call.runnerConf, metrics,
      call.jobArtifactUUID) {

  private var batch: ArrowWriter = _
  private val struct = new org.apache.spark.sql.catalyst.expressions.GenericInternalRow(1)

  override protected def hasBatch: Boolean = rows.hasNext

  override protected def fill(root: VectorSchemaRoot): Unit = {
    if (batch == null) batch = ArrowWriter.create(root)
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
    batch.finish()
  }

  override protected def reset(): Unit = batch.reset()
}
