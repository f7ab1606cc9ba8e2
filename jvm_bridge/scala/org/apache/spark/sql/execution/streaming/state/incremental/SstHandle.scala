package org.apache.spark.sql.execution.streaming.state.incremental

/** Where a block is in its file, its trailer not counted. */
private[incremental] final case class SstHandle(offset: Long, bytes: Long)
