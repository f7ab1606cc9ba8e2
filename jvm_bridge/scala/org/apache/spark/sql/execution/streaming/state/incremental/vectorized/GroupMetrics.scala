package org.apache.spark.sql.execution.streaming.state.incremental.vectorized

import org.apache.spark.sql.execution.metric.SQLMetric

/** The metrics of the operator that a partition counts; `python` are the worker's, by Spark's names. */
private[vectorized] case class GroupMetrics(
    outputRows: SQLMetric,
    updatedStates: SQLMetric,
    removedStates: SQLMetric,
    python: Map[String, SQLMetric])
