package org.apache.spark.sql.execution.streaming.state.incremental.placement

import java.util.{Arrays, LinkedHashMap}
import java.util.Map.Entry

import scala.collection.mutable

import org.apache.spark.{SparkContext, Success}
import org.apache.spark.scheduler._

/**
 * Run times of the tasks that have stores, of the last batches of each run. A stage is known by its place among the
 * stages with stores in its batch. Safe for any thread; the runs that have been silent for longest are forgotten.
 */
private[placement] final class TaskTimes extends SparkListener {
  import TaskTimes._

  private val runs = new LinkedHashMap[String, RunTimes](16, 0.75f, true) {
    override def removeEldestEntry(eldest: Entry[String, RunTimes]): Boolean = size > MaxRuns
  }
  private val stages = mutable.Map.empty[Int, (String, Int)]

  /** Returns the median time of each partition of a stage, in milliseconds, if there are a few of them. */
  def medians(run: String, stage: Int): Map[Int, Double] = synchronized {
    Option(runs.get(run)).toSeq.flatMap(_.times).collect { case ((`stage`, partition), last) =>
      last.median.map(partition -> _)
    }.flatten.toMap
  }

  override def onStageSubmitted(event: SparkListenerStageSubmitted): Unit = for {
    properties <- Option(event.properties)
    run <- Option(properties.getProperty(SparkContext.SPARK_JOB_GROUP_ID))
    batch <- Option(properties.getProperty(BatchId))
    if event.stageInfo.rddInfos.exists(rdd => WithStores.exists(rdd.name.startsWith))
  } synchronized {
    val times = runs.computeIfAbsent(run, _ => new RunTimes)
    stages(event.stageInfo.stageId) = (run, times.placeOf(batch, event.stageInfo.stageId))
  }

  override def onStageCompleted(event: SparkListenerStageCompleted): Unit = synchronized {
    stages -= event.stageInfo.stageId
  }

  override def onTaskEnd(event: SparkListenerTaskEnd): Unit = synchronized {
    for {
      (run, place) <- stages.get(event.stageId)
      times <- Option(runs.get(run)) if event.reason == Success && event.taskMetrics != null
    } times.times.getOrElseUpdate((place, event.taskInfo.partitionId), new Last)
      .add(event.taskInfo.executorId, event.taskMetrics.executorRunTime.toDouble)
  }
}

private object TaskTimes {
  private val MaxRuns = 100
  private val Batches = 5

  /** The number of times from which on their median says more than chance. */
  private val FewBatches = 3
  private val BatchId = "streaming.sql.batchId"
  private val WithStores = Seq("StateStoreRDD", "StateStoreAwareZipPartitionsRDD")

  private final class RunTimes {
    val times = mutable.Map.empty[(Int, Int), Last]
    private var batch = ""
    private val stages = mutable.ArrayBuffer.empty[Int]

    def placeOf(ofBatch: String, stage: Int): Int = {
      if (ofBatch != batch) stages.clear()
      batch = ofBatch
      if (!stages.contains(stage)) stages += stage
      stages.indexOf(stage)
    }
  }

  /** The times of a partition's last few tasks. The first task on an executor restores stores: it is left out. */
  private final class Last {
    private var executor = ""
    private val values = new Array[Double](Batches)
    private var count = 0

    def add(onExecutor: String, value: Double): Unit = {
      if (onExecutor == executor) {
        values(count % Batches) = value
        count += 1
      }
      executor = onExecutor
    }

    def median: Option[Double] = if (count < FewBatches) None
    else {
      val sorted = values.take(math.min(count, Batches))
      Arrays.sort(sorted)
      Some(sorted(sorted.length / 2))
    }
  }
}
