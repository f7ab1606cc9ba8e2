package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.execution.streaming.state.StateStore

/** What Spark 4.1 asks of a store, and what later releases ask for as well: here nothing calls that. */
trait SparkStateStore extends StateStore with LaterCalls
