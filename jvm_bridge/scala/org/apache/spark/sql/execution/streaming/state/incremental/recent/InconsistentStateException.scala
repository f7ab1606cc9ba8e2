package org.apache.spark.sql.execution.streaming.state.incremental.recent

/** What is in memory contradicts itself: a defect of this program or of the machine. Nothing of it may be used. */
private[incremental] final class InconsistentStateException(message: String) extends IllegalStateException(message)
