package org.apache.spark.sql.execution.streaming.state.incremental.vectorized

import org.apache.spark.network.util.JavaUtils
import org.apache.spark.sql.internal.SQLConf

/**
 * The options under `spark.sql.streaming.stateStore.incremental.vectorized.`, read on the driver when a batch
 * is planned.
 *
 * @param enabled whether marked functions run for many groups at once (`enabled`, default true)
 * @param accelerate whether functions without a mark are accelerated too (`accelerate`, default false)
 * @param maxBatchBytes bytes of rows and states after which no group joins a call (`maxBatchBytes`, 64 MiB)
 * @param maxGroupBytes bytes of rows up to which a group is handed over whole (`maxGroupBytes`, 256 MiB)
 */
case class VectorizedOptions(enabled: Boolean, accelerate: Boolean, maxBatchBytes: Long, maxGroupBytes: Long)

object VectorizedOptions {
  private val Prefix = "spark.sql.streaming.stateStore.incremental.vectorized."

  def apply(conf: SQLConf): VectorizedOptions = VectorizedOptions(
    enabled = boolean(conf, "enabled", default = true),
    accelerate = boolean(conf, "accelerate", default = false),
    maxBatchBytes = bytes(conf, "maxBatchBytes", 64L << 20),
    maxGroupBytes = bytes(conf, "maxGroupBytes", 256L << 20))

  private def boolean(conf: SQLConf, name: String, default: Boolean): Boolean =
    conf.getConfString(Prefix + name, default.toString).trim.toLowerCase(java.util.Locale.ROOT) match {
      case "true" => true
      case "false" => false
      case other => throw new IllegalArgumentException(s"$Prefix$name is '$other': set it to true or false.")
    }

  private def bytes(conf: SQLConf, name: String, default: Long): Long = {
    val text = conf.getConfString(Prefix + name, default.toString)
    val value = try JavaUtils.byteStringAsBytes(text) catch { case _: NumberFormatException => -1L }
    if (value <= 0) {
      throw new IllegalArgumentException(
        s"$Prefix$name is '$text': set it to a positive number of bytes, like 64m.")
    }
    value
  }
}
