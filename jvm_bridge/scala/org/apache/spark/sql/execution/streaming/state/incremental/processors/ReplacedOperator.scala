package org.apache.spark.sql.execution.streaming.state.incremental.processors

import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider
import org.apache.spark.sql.execution.streaming.state.incremental.IncrementalStateStoreProvider
import org.apache.spark.sql.execution.streaming.state.incremental.release.SparkNames.{
  StatefulOperatorCustomMetric, StatefulOperatorCustomSumMetric, StateStoreWriter
}
import org.apache.spark.sql.execution.streaming.state.incremental.settings.OptionTexts
import org.apache.spark.sql.internal.SQLConf

/**
 * An operator in Python that replaces Spark's own. The plan shows it under a name of its own; in the progress of a
 * query, where Spark's name stays, a metric of the operator says so.
 */
private[incremental] trait ReplacedOperator extends StateStoreWriter {
  override def customStatefulOperatorMetrics: Seq[StatefulOperatorCustomMetric] =
    super.customStatefulOperatorMetrics :+ new StatefulOperatorCustomSumMetric(
      ReplacedOperator.Metric, "tasks in which this operator ran in place of Spark's")

  protected def countReplaced(): Unit = longMetric(ReplacedOperator.Metric) += 1
}

private[incremental] object ReplacedOperator {
  private final val Metric = "replacedOperatorTasks"
  private val provider = classOf[IncrementalStateStoreProvider].getName

  def isOurStore(conf: SQLConf): Boolean = conf.stateStoreProviderClass == provider

  /** Returns true if operators in Python that are marked may be replaced at all. */
  def isEnabled(conf: SQLConf): Boolean = OptionTexts.of(conf).boolean("vectorized.enabled")

  /**
   * Returns true if operators in Python are replaced that nobody marked: on this store and on Spark's RocksDB store,
   * unless `option`, the option for operators of this kind, is false.
   */
  def isUnasked(conf: SQLConf, option: String): Boolean =
    isEnabled(conf) && OptionTexts.of(conf).boolean(option) &&
      (isOurStore(conf) || conf.stateStoreProviderClass == classOf[RocksDBStateStoreProvider].getName)
}
