package org.apache.spark.sql.execution.streaming.state.incremental.placement

import java.util.Properties

import org.apache.spark.{Success, TaskResultLost}
import org.apache.spark.executor.{ExecutorMetrics, TaskMetrics}
import org.apache.spark.scheduler._
import org.apache.spark.storage.{RDDInfo, StorageLevel}

/** Times of tasks as the events of Spark tell them. */
private[placement] object TimedTasks {
  private val times = new TaskTimes

  def main(arguments: Array[String]): Unit = {
    batch(1, Seq("ShuffledRowRDD", "StateStoreRDD"), 9000, 9000)
    expect(medians.isEmpty, "the first task on an executor restores its store, and was counted")
    batch(2, Seq("StateStoreRDD"), 100, 700)
    batch(3, Seq("StateStoreRDD"), 200, 800)
    expect(medians.isEmpty, "two tasks were counted, though they may be short by chance")
    batch(4, Seq("StateStoreRDD"), 5000, 900)
    expect(medians == Map(0 -> 200.0, 1 -> 800.0), s"the medians are $medians")
    batch(5, Seq("ShuffledRowRDD"), 1, 1)
    expect(medians == Map(0 -> 200.0, 1 -> 800.0), "a stage without stores was counted")
    batch(6, Seq("StateStoreAwareZipPartitionsRDD"), 300, 300, executor = "other")
    expect(medians == Map(0 -> 200.0, 1 -> 800.0), "the first task after a move was counted")
    (7 to 12).foreach(number => batch(number, Seq("StateStoreRDD"), 300, 400, executor = "other"))
    expect(medians == Map(0 -> 300.0, 1 -> 400.0), s"old times are counted in $medians")
    failed()
    secondStage()
    println("tasks are timed")
  }

  private def failed(): Unit = (20 to 23).foreach { number =>
    submitted(number, number, Seq("StateStoreRDD"))
    ended(number, 0, 70000, "other", TaskResultLost)
    expect(medians == Map(0 -> 300.0, 1 -> 400.0), "a task that failed was counted")
  }

  /** The second stage with stores of a batch has times of its own. */
  private def secondStage(): Unit = {
    (30 to 34).foreach { number =>
      submitted(number * 2, number, Seq("StateStoreRDD"))
      submitted(number * 2 + 1, number, Seq("StateStoreRDD"))
      ended(number * 2, 0, 300, "other", Success)
      ended(number * 2 + 1, 0, 50, "other", Success)
    }
    expect(times.medians("run", 1) == Map(0 -> 50.0) && medians(0) == 300.0, s"${times.medians("run", 1)}")
    expect(times.medians("another", 0).isEmpty, "a run that is not known has times")
  }

  private def medians: Map[Int, Double] = times.medians("run", 0)

  private def batch(number: Int, rdds: Seq[String], first: Long, second: Long, executor: String = "1"): Unit = {
    submitted(number, number, rdds)
    ended(number, 0, first, executor, Success)
    ended(number, 1, second, executor, Success)
    times.onStageCompleted(SparkListenerStageCompleted(stage(number, rdds)))
    ended(number, 0, 1, executor, Success) // a late event of a stage that has ended
  }

  private def submitted(id: Int, batch: Int, rdds: Seq[String]): Unit = {
    val properties = new Properties
    properties.setProperty("spark.jobGroup.id", "run")
    properties.setProperty("streaming.sql.batchId", batch.toString)
    times.onStageSubmitted(SparkListenerStageSubmitted(stage(id, rdds), properties))
    times.onStageSubmitted(SparkListenerStageSubmitted(stage(id + 10000, rdds), new Properties)) // of no query
  }

  private def stage(id: Int, rdds: Seq[String]): StageInfo = {
    val infos = rdds.zipWithIndex.map { case (name, number) =>
      new RDDInfo(number, name, 2, StorageLevel.NONE, false, Nil)
    }
    new StageInfo(id, 0, "stage", 2, infos, Nil, "", resourceProfileId = 0)
  }

  private def ended(
      stage: Int, partition: Int, ms: Long, executor: String, reason: org.apache.spark.TaskEndReason): Unit = {
    val task = new TaskInfo(stage, partition, 0, partition, 0, executor, "host", TaskLocality.ANY, false)
    val metrics = new TaskMetrics
    metrics.setExecutorRunTime(ms)
    times.onTaskEnd(SparkListenerTaskEnd(stage, 0, "", reason, task, new ExecutorMetrics, metrics))
  }

  private def expect(condition: Boolean, message: => String): Unit = if (!condition) throw new AssertionError(message)
}
