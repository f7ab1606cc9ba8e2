package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.execution.streaming.state.StateStore

/** What Spark 4.2 asks of a store. */
trait SparkStateStore extends StateStore
