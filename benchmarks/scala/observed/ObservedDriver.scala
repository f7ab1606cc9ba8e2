package org.apache.spark.sql.execution.streaming.state.incremental.observed

import java.lang.management.ManagementFactory
import java.util.UUID

import scala.jdk.CollectionConverters._

import org.apache.spark.{SparkConf, SparkContext}
import org.apache.spark.sql.streaming.{SinkProgress, SourceProgress, StateOperatorProgress, StreamingQueryProgress}
import org.apache.spark.util.ThreadUtils

/**
 * Measures the cost of reports of many stores in a driver. Settings, as `name=value`: `stores`, `batches` (of a turn),
 * `warm` (batches before the first turn), `turns`, `pause_ms` (between batches), `directory`.
 *
 * One SparkContext has its listeners and status store; the sending thread makes reports as executors make them, and the
 * driver's endpoint receives them. Prints a line of JSON for each turn: the CPU time of the process for a batch,
 * without that of the sender and of as long a time without batches, and that of the five busiest threads.
 */
object ObservedDriver {
  private val threads = ManagementFactory.getThreadMXBean
  private val system = ManagementFactory.getOperatingSystemMXBean.asInstanceOf[com.sun.management.OperatingSystemMXBean]

  def main(arguments: Array[String]): Unit = {
    val given = arguments.map(_.split("=", 2)).map(pair => pair(0) -> pair(1)).toMap
    def setting(name: String, default: Int): Int = given.get(name).fold(default)(_.toInt)
    val conf = new SparkConf().setMaster("local[1]").setAppName("observed").set("spark.ui.port", "0")
      .set("spark.ui.showConsoleProgress", "false").set("spark.local.dir", given("directory"))
    val context = new SparkContext(conf)
    val driver = new ObservedDriver(context, setting("stores", 1000), setting("pause_ms", 20))
    try {
      driver.run(setting("warm", 300))
      val batches = setting("batches", 200)
      val idleNs = cpuOf(Thread.sleep(2000)) / 2000
      for (turn <- 1 to setting("turns", 3)) {
        val (before, startNs) = (byThread, System.nanoTime)
        val ns = cpuOf(driver.run(batches)) - idleNs * (System.nanoTime - startNs) / 1000000
        val busiest = byThread.map { case (name, ns) => name -> (ns - before.getOrElse(name, 0L)) / 1e6 / batches }
          .toSeq.sortBy(-_._2).take(5).map { case (name, ms) => s""""$name":$ms""" }.mkString(",")
        println(s"""{"turn":$turn,"stores":${driver.stores},"cpu_ms":${ns / 1e6 / batches},""" +
          s""""scrape_ms":${ownCpuOf(driver.scrape()) / 1e6 / 20},"event_bytes":${driver.eventBytes},""" +
          s""""threads":{$busiest}}""")
      }
    } finally context.stop()
  }

  /** Returns the CPU time of the process without this thread's, in nanoseconds. */
  private def cpuOf(body: => Unit): Long = {
    val (before, own) = (system.getProcessCpuTime, threads.getCurrentThreadCpuTime)
    body
    system.getProcessCpuTime - before - (threads.getCurrentThreadCpuTime - own)
  }

  /** Returns this thread's CPU time for twenty runs of the body, in nanoseconds. */
  private def ownCpuOf(body: => Unit): Long = {
    val before = threads.getCurrentThreadCpuTime
    (1 to 20).foreach(_ => body)
    threads.getCurrentThreadCpuTime - before
  }

  private def byThread: Map[String, Long] = {
    val ids = threads.getAllThreadIds
    threads.getThreadInfo(ids).toSeq.filter(_ != null)
      .map(info => info.getThreadName.replaceAll("[0-9]+", "N") -> threads.getThreadCpuTime(info.getThreadId))
      .groupMapReduce(_._1)(_._2)(_ + _)
  }
}

/** A query whose batches commit nothing: only the reports of their stores reach the driver. */
private final class ObservedDriver(context: SparkContext, val stores: Int, pauseMs: Long) {
  private val receiver = ReportReceiver.start().get
  private val endpoint = context.env.rpcEnv.setupEndpointRef(context.env.rpcEnv.address, Reporter.EndpointName)
  private val queries = ThreadUtils.newDaemonSingleThreadExecutor("queries") // stands for the bus of queries' listeners
  private val records = new Records(context.statusStore.store)
  private val (id, runId) = (UUID.randomUUID, UUID.randomUUID)
  private var batch = 0L

  /** Makes batches one after the other; the last is in the status store on return. */
  def run(batches: Int): Unit = {
    for (_ <- 1 to batches) {
      messages.foreach(endpoint.send(_))
      val made = progress
      queries.submit((() => receiver.progressed(made)): Runnable)
      Thread.sleep(pauseMs)
      batch += 1
    }
    while (!records.newest.exists(_.batch == batch - 1)) Thread.sleep(20)
  }

  /** Writes the text that Prometheus reads. */
  def scrape(): Unit = Exposition.of(new Answering(new Queries(records, Some(receiver))).figures)

  /** Returns the size of the event of the newest batch, in bytes. */
  def eventBytes: Int = BatchRecord.text(records.newest.last).getBytes("UTF-8").length

  private def messages: Seq[Array[Byte]] = (0 until stores).grouped(200).zipWithIndex.map { case (partitions, number) =>
    CommitMessages.write(s"${number % 10}", "10.0.0.17", partitions.map(report))
  }.toSeq

  private def report(partition: Int): StoreReport = StoreReport(
    key = StoreKey(runId.toString, 0, partition, "default"), atMs = System.currentTimeMillis,
    root = "hdfs://namenode/checkpoints/flights/state", version = batch + 1, id = Some(UUID.randomUUID.toString),
    keys = 100000L + partition, variables = Seq(Variable("default", internal = false, 100000L + partition)),
    deltaBytes = 40000L + partition, writeMs = 3, storeMs = 20, memoryBytes = 1 << 20, chainDeltas = batch % 50,
    deltasSinceFull = batch % 500, mergesSinceFull = 7, chainFiles = 12, chainBytes = 12345678L + partition,
    sharedFiles = 7, sharedBytes = 9876543L, snapshotVersion = Some(batch), snapshotKind = Some("incremental"),
    fullVersion = Some(1),
    sinceSnapshotMs = Some(60000), sinceFullMs = Some(3600000), predictedMs = Some(800L + partition % 17),
    objectiveMs = Some(10000), merges = MergeCounts(7, 1, 3, 0), failuresInRow = 0, lastFailure = None,
    damagedFiles = 0, agentRestarts = 0, agentRestartsBefore = 0, restored = None)

  private def progress: StreamingQueryProgress = new StreamingQueryProgress(
    id, runId, "flights", "2026-11-25T03:00:00.000Z", batch, 1000L, Map.empty[String, java.lang.Long].asJava,
    Map.empty[String, String].asJava, Array.empty[StateOperatorProgress], Array.empty[SourceProgress],
    new SinkProgress("noop"), Map.empty[String, org.apache.spark.sql.Row].asJava)
}
