package statestore.benchmark.processors

import java.io.File
import java.lang.management.ManagementFactory
import java.nio.file.Files
import java.util.{SplittableRandom, UUID}

import scala.collection.mutable

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.{SparkConf, SparkContext}

/**
 * A comparison of the calls that `transformWithState` makes on a store, for each kind of state variable, on Spark's
 * RocksDB store with changelog and on this project's store. The stores take turns batch by batch and have to read the
 * same rows. Prints a line of JSON for each operator and subject: medians of a batch in milliseconds, of elapsed time
 * and of CPU time of the task's thread.
 *
 * Arguments are name=value: keys, batch (keys of a batch), batches, warm (batches that do not count), directory, python
 * (the agent's), kinds (separated by commas).
 */
object ProcessorComparison {
  private val prefix = "spark.sql.streaming.stateStore."
  private val state = "org.apache.spark.sql.execution.streaming.state."

  def main(arguments: Array[String]): Unit = {
    val settings = Map("keys" -> "100000", "batch" -> "20000", "batches" -> "24", "warm" -> "8",
      "kinds" -> Workload.all.keys.mkString(","), "python" -> "python3",
      "directory" -> System.getProperty("java.io.tmpdir")) ++
      arguments.map(_.split("=", 2)).map(a => a(0) -> a(1))
    val spark = new SparkContext(new SparkConf().setMaster("local[1]").setAppName("processors")
      .set("spark.ui.enabled", "false").set("spark.driver.host", "127.0.0.1")
      .set("spark.driver.bindAddress", "127.0.0.1"))
    try settings("kinds").split(",").foreach(kind => compare(kind, settings))
    finally spark.stop()
    System.exit(0)
  }

  private def compare(kind: String, settings: Map[String, String]): Unit = {
    val directory = Files.createTempDirectory(new File(settings("directory")).toPath, s"processors-$kind").toFile
    val subjects = Seq(
      new Subject("rocksdb-changelog", kind, directory,
        Map(
          "providerClass" -> s"${state}RocksDBStateStoreProvider",
          "rocksdb.changelogCheckpointing.enabled" -> "true")),
      new Subject("incremental", kind, directory,
        Map(
          "providerClass" -> s"${state}incremental.IncrementalStateStoreProvider",
          "checkpointFormatVersion" -> "2",
          "incremental.agentPython" -> settings("python"),
          "incremental.minPauseBetweenMerges" -> "0",
          "incremental.localDir" -> new File(directory, "local").toString)))
    try {
      val random = new SplittableRandom(11)
      val keys = settings("keys").toInt
      Rows.makeNames(keys)
      for (number <- 0 until settings("batches").toInt) {
        val touched = Iterator.continually(random.nextInt(keys)).distinct.take(settings("batch").toInt).toArray
        val turns = if (number % 2 == 0) subjects else subjects.reverse
        val read = turns.map(subject => subject.run(number, touched, counts = number >= settings("warm").toInt))
        require(read.distinct.size == 1, s"$kind: the subjects read ${read.mkString(" and ")} in batch $number")
      }
      subjects.foreach(subject => println(subject.figures))
    } finally {
      subjects.foreach(_.close())
      delete(directory)
    }
  }

  private def delete(file: File): Unit = {
    Option(file.listFiles).toSeq.flatten.foreach(delete)
    file.delete()
  }

  /** A store of a provider, with the column families of one kind of state variable. */
  private final class Subject(name: String, kind: String, directory: File, options: Map[String, String]) {
    private val threads = ManagementFactory.getThreadMXBean
    private val times = mutable.LinkedHashMap.empty[String, mutable.ArrayBuffer[Double]]
    private val conf = {
      val sql = new SQLConf
      options.foreach { case (option, value) => sql.setConfString(prefix + option, value) }
      StateStoreConf(sql)
    }
    private val provider = StateStoreProvider.createAndInit(
      StateStoreProviderId(StateStoreId(new File(directory, name).toString, 0, 0), UUID.randomUUID), Rows.keySchema,
      Rows.valueSchema, NoPrefixKeyStateEncoderSpec(Rows.keySchema), useColumnFamilies = true, conf, new Configuration,
      useMultipleValuesPerKey = true, None)
    private var version = 0L
    private var checkpoint: Option[String] = None

    /** Runs a batch over keys; returns a number made of all rows that it read. */
    def run(number: Int, touched: Array[Int], counts: Boolean): Long = {
      val begun = now()
      val store = provider.getStore(version, checkpoint)
      val work = Workload.all(kind)(store)
      val opened = now()
      val read = work.batch(number, touched)
      val done = now()
      version = store.commit()
      if (conf.enableStateStoreCheckpointIds) checkpoint = store.getStateStoreCheckpointInfo().stateStoreCkptId
      val ended = now()
      if (counts) Seq("open" -> (begun, opened), "rows" -> (opened, done), "commit" -> (done, ended),
        "batch" -> (begun, ended))
        .foreach { case (phase, (from, to)) =>
          note(phase, to._1 - from._1)
          note(s"$phase cpu", to._2 - from._2)
        }
      provider.doMaintenance()
      read
    }

    private def now(): (Long, Long) = (System.nanoTime, threads.getCurrentThreadCpuTime)

    private def note(phase: String, ns: Long): Unit =
      times.getOrElseUpdate(phase, mutable.ArrayBuffer.empty) += ns / 1e6

    def figures: String = {
      val medians = times.map { case (phase, all) =>
        s""""$phase": ${"%.2f".formatLocal(java.util.Locale.ROOT, median(all))}"""
      }
      s"""{"kind": "$kind", "subject": "$name", "ms": {${medians.mkString(", ")}}}"""
    }

    private def median(all: mutable.ArrayBuffer[Double]): Double = all.sorted.apply(all.length / 2)

    def close(): Unit = provider.close()
  }
}
