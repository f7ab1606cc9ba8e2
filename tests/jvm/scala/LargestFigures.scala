package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.File

import org.apache.spark.sql.execution.streaming.state.{StateStoreId, StateStoreMetrics}
import org.apache.spark.sql.execution.streaming.state.incremental.agent.SnapshotAges
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.ColumnFamilies
import org.apache.spark.sql.execution.streaming.state.incremental.local.{MergeCounters, VerificationCounters}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.MemoryUse
import org.apache.spark.sql.execution.streaming.state.incremental.transaction.LookUps

/** Figures of an operator that are the largest of its stores: a task of a join has several stores. */
private[incremental] object LargestFigures extends StoreCases {
  def areOfOneStore(ignored: File): Unit = {
    val ofTasks = Seq(Seq("left" -> 3000L, "right" -> 2000L), Seq("left" -> 1000L, "right" -> 2500L)).map { stores =>
      val shown = new MaxMetric("timing")
      val all = StateStoreMetrics.combine(stores.map { case (name, age) => metrics(name, age) })
      for ((metric, value) <- all.customMetrics if metric.name == "incrementalSinceSnapshotMs") shown += value
      val spilled = all.customMetrics.filter(_._1.name == "incrementalSpilledBytes").values
      expect(spilled.sum == 2, s"two stores that spilled a byte each count as $spilled")
      shown
    }
    expect(ofTasks.map(_.value) == Seq(3000L, 2500L), s"the oldest snapshots of two tasks are ${ofTasks.map(_.value)}")
    val ofOperator = new MaxMetric("timing")
    ofTasks.foreach(ofOperator.merge)
    expect(ofOperator.value == 3000, s"the oldest snapshot of the operator is ${ofOperator.value}")
  }

  private def metrics(store: String, ageMs: Long): StateStoreMetrics =
    StoreMetrics.of(StateStoreId("checkpoint", 0, 0, store),
      BatchMetrics(0, ColumnFamilies.initial, MemoryUse(0, 0, 0, 0, spilledBytes = 1), LookUps.none, 0, None, None,
        MergeCounters(), MergeCounters(), VerificationCounters(), SnapshotAges(Some(ageMs), Some(ageMs)), false))
}
