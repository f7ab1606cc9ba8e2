package statestore.benchmark.commits

import java.lang.management.ManagementFactory
import java.nio.file.{Files, Paths}
import java.util.UUID
import java.util.concurrent.ConcurrentLinkedQueue
import java.util.concurrent.atomic.AtomicLong

import scala.jdk.CollectionConverters._
import scala.util.Try

import org.apache.hadoop.conf.Configuration

import org.apache.spark.SparkContext
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.{LongType, StructField, StructType}
import org.apache.spark.unsafe.Platform

/**
 * Measures the commits of a store's provider: how long each takes in its task, how much of it is CPU time of the task's
 * thread, how long it waits for a core, and how often it waits for something else, which does not depend on other work
 * of the machine. `longest` has these figures of the commit that took longest, and the collections of garbage in it.
 * `threads_ms` is the CPU time of a batch by threads, milliseconds.
 *
 * Settings, as `name=value`: `provider` (class), `stores`, `tasks` (that run at a time), `rows` (changed in each commit),
 * `keys` (of a store), `batches` (of a turn), `warm` (batches before the first turn), `turns`, `directory`, `storage`
 * (URI, default: below the directory). Each other setting is an option of SQL, or with the prefix `hadoop:` of Hadoop.
 *
 * Prints a line of JSON for each turn.
 */
object CommitDriver {
  private val ShownThreads = 12

  private val own = Set("provider", "stores", "tasks", "rows", "keys", "batches", "warm", "turns", "directory",
    "storage",
    "python", "pause_ms")

  /** The driver whose stores the tasks change, which run in this JVM. */
  @volatile private var current: CommitDriver = _

  def main(arguments: Array[String]): Unit = {
    val given = arguments.map(_.split("=", 2)).map(pair => pair(0) -> pair(1)).toMap
    def setting(name: String, default: Int): Int = given.get(name).fold(default)(_.toInt)
    val tasks = setting("tasks", 2)
    val session = SparkSession.builder().master(s"local[$tasks]").appName("commits")
      .config("spark.ui.enabled", "false").config("spark.local.dir", given("directory"))
      .config("spark.pyspark.python", given("python")).getOrCreate()
    session.streams // creates the coordinator to which stores report commits
    val conf = new SQLConf
    conf.setConfString("spark.sql.streaming.stateStore.providerClass", given("provider"))
    val (hadoop, sql) = given.filterNot(pair => own(pair._1)).partition(_._1.startsWith("hadoop:"))
    sql.foreach { case (name, value) => conf.setConfString(name, value) }
    val hadoopConf = new Configuration(session.sparkContext.hadoopConfiguration)
    hadoop.foreach { case (name, value) => hadoopConf.set(name.stripPrefix("hadoop:"), value) }
    val root = given.getOrElse("storage", s"file:${given("directory")}/checkpoint") + s"/${UUID.randomUUID}"
    val driver = new CommitDriver(session.sparkContext, StateStoreConf(conf), hadoopConf, root, setting("stores", 8),
      setting("rows", 1000), setting("keys", 50000), setting("pause_ms", 0))
    current = driver
    try {
      driver.run(setting("warm", 40))
      for (turn <- 1 to setting("turns", 3)) println(driver.measured(turn, setting("batches", 60)))
    } finally {
      driver.close()
      session.stop()
    }
  }
}

private final class CommitDriver(
    context: SparkContext, conf: StateStoreConf, hadoopConf: Configuration, root: String, stores: Int, rows: Int,
    keys: Int, pauseMs: Int) {
  private val threads = ManagementFactory.getThreadMXBean
  private val schema = StructType(Seq(StructField("key", LongType, nullable = false)))
  private val valueSchema = StructType(Seq("count", "sum").map(StructField(_, LongType, nullable = false)))
  private val runId = UUID.randomUUID
  private val providers = Array.tabulate(stores) { partition =>
    val configuration = new Configuration(hadoopConf)
    configuration.set(StreamingNames.runId, runId.toString)
    StateStoreProvider.createAndInit(
      StateStoreProviderId(StateStoreId(root, 0L, partition), runId), schema, valueSchema,
      NoPrefixKeyStateEncoderSpec(schema), useColumnFamilies = false, conf, configuration,
      useMultipleValuesPerKey = false, None)
  }
  private val versions = new Array[Long](stores)
  private val ids = Array.fill[Option[String]](stores)(None)
  private val commits = new ConcurrentLinkedQueue[CommitFigures]
  private val batchNs = new ConcurrentLinkedQueue[java.lang.Long]
  private val seed = new AtomicLong(1)

  /** Makes batches: each store gets and puts rows, and commits; returns the milliseconds of each. */
  def run(batches: Int): Unit = for (_ <- 1 to batches) {
    val startNs = System.nanoTime
    context.parallelize(0 until stores, stores).foreach(store => CommitDriver.current.task(store))
    batchNs.add(System.nanoTime - startNs)
    if (pauseMs > 0) Thread.sleep(pauseMs)
  }

  def task(store: Int): Unit = {
    val opened = providers(store).getStore(versions(store), ids(store))
    val (key, value) = (row(1), row(2))
    val random = new java.util.SplittableRandom(seed.getAndIncrement())
    for (_ <- 0 until rows) {
      key.setLong(0, random.nextLong(keys))
      val old = opened.get(key, StateStore.DEFAULT_COL_FAMILY_NAME)
      value.setLong(0, if (old == null) 1L else old.getLong(0) + 1)
      value.setLong(1, random.nextLong(1000))
      opened.put(key, value, StateStore.DEFAULT_COL_FAMILY_NAME)
    }
    val (waitsBefore, delayBefore, collectedBefore) = (waitsOfThread, delayOfThread, collectedMs)
    val (startNs, startCpuNs) = (System.nanoTime, threads.getCurrentThreadCpuTime)
    versions(store) = opened.commit()
    val (wallNs, cpuNs) = (System.nanoTime - startNs, threads.getCurrentThreadCpuTime - startCpuNs)
    commits.add(CommitFigures(wallNs / 1e6, cpuNs / 1e6, (delayOfThread - delayBefore) / 1e6,
      waitsOfThread - waitsBefore, collectedMs - collectedBefore))
    opened.metrics
    if (conf.enableStateStoreCheckpointIds) ids(store) = opened.getStateStoreCheckpointInfo().stateStoreCkptId
  }

  /** Returns how often this thread has waited for another thread, a process or the disk. */
  private def waitsOfThread: Long =
    Files.readAllLines(Paths.get("/proc/thread-self/status")).asScala
      .collectFirst { case line if line.startsWith("voluntary_ctxt_switches:") => line.split("\\s+")(1).toLong }.get

  /** Returns the milliseconds that collections of garbage have taken so far. */
  private def collectedMs: Long =
    ManagementFactory.getGarbageCollectorMXBeans.asScala.map(_.getCollectionTime).sum

  /** Returns the nanoseconds of CPU of the threads of this JVM and of its agent, by their names without numbers. */
  private def cpuOfThreads: Map[String, Long] = {
    val jvm = ProcessHandle.current
    val agents = jvm.descendants.iterator.asScala.map(_.pid -> "agent").toSeq
    val all = for {
      (pid, process) <- (jvm.pid -> "jvm") +: agents
      thread <- Option(Paths.get(s"/proc/$pid/task").toFile.listFiles).toSeq.flatten
      cpu <- Try {
        val name = Files.readString(thread.toPath.resolve("comm")).trim.replaceAll("[0-9\"\\\\]+", "")
        s"$process $name" -> Files.readString(thread.toPath.resolve("schedstat")).split(" ")(0).toLong
      }.toOption // threads end
    } yield cpu
    all.groupMapReduce(_._1)(_._2)(_ + _)
  }

  /** Returns the nanoseconds for which this thread could have run, and another thread or process had its core. */
  private def delayOfThread: Long =
    Files.readString(Paths.get("/proc/thread-self/schedstat")).split(" ")(1).toLong

  private def row(fields: Int): UnsafeRow = {
    val made = new UnsafeRow(fields)
    made.pointTo(new Array[Byte](8 + 8 * fields), Platform.BYTE_ARRAY_OFFSET, 8 + 8 * fields)
    made
  }

  def measured(turn: Int, batches: Int): String = {
    commits.clear()
    batchNs.clear()
    val before = cpuOfThreads
    run(batches)
    val threads = cpuOfThreads.toSeq
      .map { case (name, ns) => name -> (ns - before.getOrElse(name, 0L)) / 1e6 / batches }
      .sortBy(-_._2).take(CommitDriver.ShownThreads)
      .map { case (name, ms) => f""""$name":$ms%.2f""" }
    def at(values: Seq[Double], share: Double) = values(math.min(values.size - 1, (values.size * share).toInt))
    val all = commits.asScala.toSeq
    val wall = all.map(_.wallMs).sorted
    val (cpu, delay) = (all.map(_.cpuMs).sorted, all.map(_.delayMs).sorted)
    val batch = batchNs.asScala.map(_ / 1e6).toSeq.sorted
    val longest = all.maxBy(_.wallMs)
    f"""{"turn":$turn,"commits":${wall.size},"min_ms":${wall.head}%.3f,"p10_ms":${at(wall, 0.1)}%.3f,""" +
      f""""median_ms":${at(wall, 0.5)}%.3f,"p90_ms":${at(wall, 0.9)}%.3f,"p99_ms":${at(wall, 0.99)}%.3f,""" +
      f""""max_ms":${longest.wallMs}%.3f,"cpu_median_ms":${at(cpu, 0.5)}%.3f,"cpu_max_ms":${cpu.last}%.3f,""" +
      f""""delay_median_ms":${at(delay, 0.5)}%.3f,"delay_mean_ms":${delay.sum / delay.size}%.3f,""" +
      f""""waits_mean":${all.map(_.waits).sum / wall.size.toDouble}%.2f,""" +
      f""""longest":{"cpu_ms":${longest.cpuMs}%.3f,"delay_ms":${longest.delayMs}%.3f,"waits":${longest.waits},""" +
      f""""collected_ms":${longest.collectedMs}},""" +
      f""""batch_median_ms":${at(batch, 0.5)}%.3f,"threads_ms":{${threads.mkString(",")}}}"""
  }

  def close(): Unit = providers.foreach(_.close())
}

/**
 * Figures of a commit: its time, CPU time, and time without a core, milliseconds; how often its thread waited; and how
 * long garbage was collected meanwhile.
 */
private final case class CommitFigures(wallMs: Double, cpuMs: Double, delayMs: Double, waits: Long, collectedMs: Long)

private object StreamingNames {
  val runId = "sql.streaming.runId"
}
