package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.state.{StateStoreConf, StateStoreId}
import org.apache.spark.sql.execution.streaming.StreamExecution

/** What a store knows of the driver's query, and tells it. Spark 4.0 hears neither of commits nor of snapshots. */
object Driver {
  /** The id of the query's run. */
  def runId(hadoopConf: Configuration): String = {
    val id = hadoopConf.get(StreamExecution.RUN_ID_KEY)
    assert(id != null)
    id
  }

  def reportCommit(conf: StateStoreConf, version: Long, id: StateStoreId, hadoopConf: Configuration): Unit = ()

  def reportSnapshot(conf: StateStoreConf, version: Long, id: StateStoreId, hadoopConf: Configuration): Unit = ()
}
