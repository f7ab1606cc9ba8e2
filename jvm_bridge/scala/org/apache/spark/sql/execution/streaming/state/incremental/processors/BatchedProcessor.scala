package org.apache.spark.sql.execution.streaming.state.incremental.processors

import java.io.{ByteArrayOutputStream, DataOutputStream}
import java.net.{InetSocketAddress, StandardSocketOptions}
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.channels.{Channels, SocketChannel}
import java.nio.charset.StandardCharsets.{US_ASCII, UTF_8}
import java.nio.file.Path
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.TimeUnit.NANOSECONDS

import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._

import org.apache.arrow.vector.{VectorSchemaRoot, VectorUnloader}
import org.apache.arrow.vector.ipc.{ArrowStreamWriter, WriteChannel}
import org.apache.arrow.vector.ipc.message.MessageSerializer

import org.apache.spark.{SparkEnv, TaskContext}
import org.apache.spark.api.python.{
  ChainedPythonFunctions, PythonEvalType, PythonFunction, PythonWorker, SimplePythonFunction
}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, PythonUDF, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.arrow.ArrowWriter
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.streaming.state.{
  NoPrefixKeyStateEncoderSpec, RocksDBStateStoreProvider, StateStore, StateStoreOps
}
import org.apache.spark.sql.execution.streaming.state.incremental.IncrementalStateStoreProvider
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json
import org.apache.spark.sql.execution.streaming.state.incremental.release.{
  ArrowTypes, AsTheApplicationSays, Jar, ProcessorHandles, SerialArrowRunner, StatefulProcessors, WorkerSettings
}
import org.apache.spark.sql.execution.streaming.state.incremental.release.ProcessorHandles.PythonProcessorExec
import org.apache.spark.sql.execution.streaming.state.incremental.release.SparkNames.{
  StatefulOperatorCustomMetric, StatefulOperatorCustomSumMetric, StateStoreWriter
}
import org.apache.spark.sql.execution.streaming.state.incremental.settings.OptionTexts
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.streaming.TimeMode
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnarBatch}
import org.apache.spark.util.{CompletionIterator, ThreadUtils}

// `transformWithState` in Python in batches, from the rule that replaces Spark's operator to the runner of its worker.

/**
 * A rule that replaces Spark's operators of `transformWithState`. On this store and on Spark's own RocksDB store,
 * operators in Python become [[BatchedProcessorExec]]. On this store, the others and those that cannot be batched
 * become operators that do not check the store's class, which Spark compares with its own RocksDB store.
 *
 * If another class is configured, Spark's check of the store stays.
 */
class StatefulProcessorRule extends Rule[SparkPlan] {
  override def apply(plan: SparkPlan): SparkPlan =
    if (Jar.problem.isDefined) plan
    else plan.transform(Function.unlift((node: SparkPlan) => batched(node).orElse(onThisStore(node))))

  private def onThisStore(node: SparkPlan): Option[SparkPlan] = node match {
    case _: BatchedProcessor => None
    case _ if ReplacedOperator.isOurStore(conf) => StatefulProcessors.onAnyStore(node)
    case _ => None
  }

  private def batched(node: SparkPlan): Option[SparkPlan] = node match {
    case _: BatchedProcessor => None
    case exec: PythonProcessorExec
        if exec.isStreaming && ReplacedOperator.isUnasked(conf, "vectorized.processors") =>
      StatefulProcessorRule.obstacle(exec) match {
        case None => Some(BatchedProcessorExec(exec))
        case Some(reason) =>
          if (StatefulProcessorRule.logged.add(reason)) {
            logWarning(s"A processor of transformWithState runs in Spark's own worker, call by call: $reason.")
          }
          None
      }
    case _ => None
  }
}

private[processors] object StatefulProcessorRule {
  private val logged = ConcurrentHashMap.newKeySet[String]()

  /** Returns the reason why a processor has to run in Spark's own worker; None if it can be batched. */
  private def obstacle(exec: PythonProcessorExec): Option[String] =
    if (ProcessorHandles.obstacle.isDefined) ProcessorHandles.obstacle
    else if (exec.hasInitialState) Some("the first batch of a query with initial state is not batched")
    else if (isWrapped) Some("PySpark puts a profiling function around it (spark.python.profile)")
    else exec.functionExpr match {
      case udf: PythonUDF => ReplacedOperator.obstacle(udf.func)
      case _ => Some("its function is not known")
    }

  private def isWrapped: Boolean =
    Seq("spark.python.profile", "spark.python.profile.memory").exists(SparkEnv.get.conf.getBoolean(_, false))
}

/**
 * An operator in Python that replaces Spark's own. The plan shows it under a name of its own; in the progress of a
 * query, where Spark's name stays, a metric of the operator says so.
 */
private[incremental] trait ReplacedOperator extends StateStoreWriter {
  override def customStatefulOperatorMetrics: Seq[StatefulOperatorCustomMetric] =
    super.customStatefulOperatorMetrics :+ new StatefulOperatorCustomSumMetric(
      ReplacedOperator.Metric, "tasks in which this operator ran in place of Spark's")

  protected def countReplaced(): Unit = longMetric(ReplacedOperator.Metric) += 1
}

private[incremental] object ReplacedOperator {
  private final val Metric = "replacedOperatorTasks"
  private val provider = classOf[IncrementalStateStoreProvider].getName

  /** The oldest Python 3 that this project's package runs in, as its `requires-python` says. */
  private final val OldestMinor = 10

  def isOurStore(conf: SQLConf): Boolean = conf.stateStoreProviderClass == provider

  /** Returns true if operators in Python that are marked may be replaced at all. */
  def isEnabled(conf: SQLConf): Boolean = OptionTexts.of(conf).boolean("vectorized.enabled")

  /** Returns the reason why this project's code cannot run in the workers of a function; None if it can. */
  def obstacle(function: PythonFunction): Option[String] = function.pythonVer.split('.') match {
    case Array("3", minor) if minor.toIntOption.exists(_ < OldestMinor) =>
      Some(s"its Python is ${function.pythonVer}, older than 3.$OldestMinor")
    case _ => None
  }

  /**
   * Returns true if operators in Python are replaced that nobody marked: on this store and on Spark's RocksDB store,
   * unless `option`, the option for operators of this kind, is false.
   */
  def isUnasked(conf: SQLConf, option: String): Boolean =
    isEnabled(conf) && OptionTexts.of(conf).boolean(option) &&
      (isOurStore(conf) || conf.stateStoreProviderClass == classOf[RocksDBStateStoreProvider].getName)
}

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
      settings = WorkerSettings.of(conf),
      maxBytes = ProcessorHandles.maxBytesPerBatch(conf),
      maxStateRecords = ProcessorHandles.maxStateRecords(conf),
      maxMessageBytes = OptionTexts.of(conf).bytes("vectorized.maxBatchBytes"),
      maxGroupBytes = OptionTexts.of(conf).bytes("vectorized.maxGroupBytes"))
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
    val updates = longMetric("numUpdatedStateRows")
    val server = new StateServer(new StateAnswers(handle, keys, call.maxMessageBytes, updates += _))
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
    extends UncompressedArrowRunner(call.command(server), call.inputType, call.settings, metrics)
    with AsTheApplicationSays {

  // Spark's runner of processors takes it from the function, and not from the session.
  override val pythonExec: String = call.function.pythonExec

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
    } while (count < call.settings.maxRecords && bytes < call.maxBytes && rows.hasNext)
    batch.finish()
  }

  override protected def reset(): Unit = batch.reset()
}

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
    settings: WorkerSettings,
    maxBytes: Long,
    maxStateRecords: Int,
    maxMessageBytes: Long,
    maxGroupBytes: Long) {

  val keyType: StructType = DataTypeUtils.fromAttributes(groupingAttributes)

  /**
   * The columns that go to the worker, and the positions of the grouping columns among them. In Spark's order, grouping
   * columns that are not in the data come first.
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
      "time_zone" -> settings.timeZoneId,
      "max_records" -> settings.frameRecords,
      "max_bytes" -> maxBytes,
      "max_state_records" -> maxStateRecords,
      "max_group_bytes" -> maxGroupBytes,
      "runner" -> settings.runnerConf).toString
    val wrapped = SimplePythonFunction(
      PickledCall("state_store.functions.processors.processor_loop", "processor_command", function.command.toArray,
        header),
      function.envVars, function.pythonIncludes, function.pythonExec, function.pythonVer, function.broadcastVars,
      function.accumulator)
    Seq((ChainedPythonFunctions(Seq(wrapped)), resultId))
  }
}

/** A writer of pickles (protocol 3) that call Python functions when they are loaded. */
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

  /** Returns functions whose workers look for modules in an archive, too, after all other places. */
  def withModules(
      archive: Path,
      functions: Seq[(ChainedPythonFunctions, Long)]): Seq[(ChainedPythonFunctions, Long)] =
    functions.map { case (chained, id) =>
      val reaching = chained.funcs.map(f =>
        SimplePythonFunction(after(archive, f.command), f.envVars, f.pythonIncludes, f.pythonExec, f.pythonVer,
          f.broadcastVars, f.accumulator))
      (ChainedPythonFunctions(reaching), id)
    }

  /** Returns a pickle that calls `site.addsitedir` when it is loaded, and then goes on as `pickle`. */
  private def after(archive: Path, pickle: Seq[Byte]): Seq[Byte] = {
    val out = new ByteArrayOutputStream(pickle.length + 256)
    out.write(Array(0x80.toByte, 3.toByte)) // PROTO 3
    out.write("csite\naddsitedir\n(".getBytes(US_ASCII)) // GLOBAL, MARK
    write(out, 'X', archive.toString.getBytes(UTF_8)) // BINUNICODE
    out.write(Array('t'.toByte, 'R'.toByte, '0'.toByte)) // TUPLE, REDUCE, POP
    out.write(pickle.toArray)
    out.toByteArray.toSeq
  }

  private def write(out: ByteArrayOutputStream, opcode: Char, data: Array[Byte]): Unit = {
    out.write(opcode)
    out.write(ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(data.length).array())
    out.write(data)
  }
}

/**
 * A runner that sends batches to an ordinary Arrow iterator worker, the one that serves `mapInArrow`. It does not use
 * the input iterator of `compute`.
 *
 * The batches are never compressed, for any `spark.sql.execution.arrow.compression.codec`: Spark's own operators of
 * stateful functions do not compress either, and PyArrow refuses the buffers without bytes that Arrow's Java library
 * makes with a codec (apache/arrow-java#1196).
 *
 * A worker whose Python lacks the package finds it in the archive that the jar brings.
 */
private[incremental] abstract class UncompressedArrowRunner(
    functions: Seq[(ChainedPythonFunctions, Long)],
    schema: StructType,
    settings: WorkerSettings,
    metrics: Map[String, SQLMetric])
    extends SerialArrowRunner(
      Jar.pythonCode.fold(functions)(PickledCall.withModules(_, functions)), PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
      schema, settings, metrics) {

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
