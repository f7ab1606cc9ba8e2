package org.apache.spark.sql.execution.streaming.state.incremental.vectorized

import org.apache.spark.sql.execution.streaming.state.incremental.settings.OptionTexts
import org.apache.spark.sql.internal.SQLConf

/**
 * The options below `vectorized.`, read on the driver when a batch is planned.
 *
 * @param enabled whether marked functions run for many groups at once
 * @param accelerate whether functions without a mark are accelerated too
 * @param maxBatchBytes bytes of rows and states after which no group joins a call
 * @param maxGroupBytes bytes of rows up to which a group is handed over whole
 */
private[vectorized] case class VectorizedOptions(enabled: Boolean, accelerate: Boolean, maxBatchBytes: Long, maxGroupBytes: Long)

private[vectorized] object VectorizedOptions {

  /** @throws java.lang.IllegalArgumentException that names option, value and remedy */
  def apply(conf: SQLConf): VectorizedOptions = {
    val options = OptionTexts.of(conf)
    VectorizedOptions(
      enabled = options.boolean("vectorized.enabled"),
      accelerate = options.boolean("vectorized.accelerate"),
      maxBatchBytes = options.bytes("vectorized.maxBatchBytes"),
      maxGroupBytes = options.bytes("vectorized.maxGroupBytes"))
  }
}
