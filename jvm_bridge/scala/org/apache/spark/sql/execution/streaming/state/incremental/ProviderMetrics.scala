package org.apache.spark.sql.execution.streaming.state.incremental

import org.apache.spark.sql.execution.streaming.state.{StateStoreId, StateStoreMetrics}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.ColumnFamilies
import org.apache.spark.sql.execution.streaming.state.incremental.local.{Committed, LocalStore, MergeCounters, Opened, VerificationCounters}
import org.apache.spark.sql.execution.streaming.state.incremental.transaction.LookUps

/** The metrics of a provider's stores, each commit with what was merged and verified since the one before. Any thread. */
private[incremental] final class ProviderMetrics(id: StateStoreId, local: LocalStore) {
  private var reportedMerges = MergeCounters()
  private var reportedVerified = VerificationCounters()

  /** Those of a store; without `committed` those so far, of which nothing counts as reported. */
  def of(
      opened: Opened,
      committed: Option[Committed],
      keys: Long,
      families: ColumnFamilies,
      lookUps: LookUps,
      forced: Boolean): StateStoreMetrics = synchronized {
    val merges = local.merges.counters
    val verified = local.verification.counters
    val batch = BatchMetrics(
      keys - families.internalKeys, families, local.memoryUse, lookUps, opened.loadMs, opened.restored,
      committed, merges.since(reportedMerges), merges, verified.since(reportedVerified),
      local.merges.snapshotAges, forced)
    if (committed.isDefined) {
      reportedMerges = merges
      reportedVerified = verified
    }
    StoreMetrics.of(id, batch)
  }
}
