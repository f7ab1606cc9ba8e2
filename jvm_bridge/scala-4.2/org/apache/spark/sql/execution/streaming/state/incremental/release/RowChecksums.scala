package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.execution.streaming.state.StateStoreConf

/** Spark's checksums of single rows. */
object RowChecksums {
  def areAsked(conf: StateStoreConf): Boolean = conf.rowChecksumEnabled
}
