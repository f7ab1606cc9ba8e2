package org.apache.spark.sql.execution.streaming.state.incremental.sst

/** Brings bytes of a file that is not there as a whole to their places in it. Any number of threads. */
private[incremental] trait MissingBytes {

  /** Those from an offset on, as far as there are any; throws an IOException that says why not. */
  def fetch(offset: Long, length: Long): Unit
}
