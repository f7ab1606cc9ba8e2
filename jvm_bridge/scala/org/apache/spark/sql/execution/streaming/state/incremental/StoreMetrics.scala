package org.apache.spark.sql.execution.streaming.state.incremental

import org.apache.spark.SparkContext
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.incremental.agent.{
  ChainSizes, HydrationCounters, RestoreAnswer, SnapshotAges
}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.ColumnFamilies
import org.apache.spark.sql.execution.streaming.state.incremental.local.{
  CommittedVersion, LocalStore, MergeCounters, OpenTransaction, VerificationCounters
}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.MemoryUse
import org.apache.spark.sql.execution.streaming.state.incremental.observed.{Model, ProgressMetric}
import org.apache.spark.sql.execution.streaming.state.incremental.release.ReportedMetrics
import org.apache.spark.sql.execution.streaming.state.incremental.transaction.LookUps
import org.apache.spark.util.AccumulatorV2

/**
 * The figures of one store in one batch.
 *
 * @param keys number of rows that Spark shows, without those of internal column families
 * @param merged counters of the merges since the batch before
 * @param merges counters of all merges so far
 * @param verified counters of the background verification since the batch before
 */
final case class BatchMetrics(
    keys: Long,
    families: ColumnFamilies,
    memory: MemoryUse,
    lookUps: LookUps,
    loadMs: Long,
    restored: Option[RestoreAnswer],
    committed: Option[CommittedVersion],
    merged: MergeCounters,
    merges: MergeCounters,
    verified: VerificationCounters,
    ages: SnapshotAges,
    forcedSnapshot: Boolean)

/**
 * The custom metrics of the state store, as Spark shows them in a query's progress and in its UI. Their names, kinds and
 * descriptions are declared in `state_store/observe/metrics.py`.
 */
object StoreMetrics {
  private type Reader = BatchMetrics => Long

  private def depends(batch: BatchMetrics, read: ChainSizes => Long): Long =
    batch.committed.fold(0L)(made => read(made.answer.chain))
  private def hydration(batch: BatchMetrics, read: HydrationCounters => Long): Long =
    batch.committed.fold(0L)(made => read(made.answer.hydration))
  private def restore(batch: BatchMetrics, read: RestoreAnswer => Long): Long =
    batch.restored.fold(0L)(read)

  private val readers: Map[String, Reader] = Map(
    "incrementalDeltaBytes" -> (_.committed.fold(0L)(_.delta.bytes)),
    "incrementalDeltaPuts" -> (_.committed.fold(0L)(_.delta.puts)),
    "incrementalDeltaRemoves" -> (_.committed.fold(0L)(_.delta.removes)),
    "incrementalCommitWriteMs" -> (_.committed.fold(0L)(_.writeMs)),
    "incrementalCommitStoreMs" -> (_.committed.fold(0L)(_.commitMs)),
    "incrementalForcedSnapshots" -> (f => if (f.forcedSnapshot) 1 else 0),
    "incrementalChainDeltas" -> (depends(_, _.deltas)),
    "incrementalDeltasSinceFull" -> (depends(_, _.deltasSinceFull)),
    "incrementalMergesSinceFull" -> (depends(_, _.mergesSinceFull)),
    "incrementalChainFiles" -> (depends(_, _.files)),
    "incrementalChainBytes" -> (depends(_, _.bytes)),
    "incrementalSinceSnapshotMs" -> (_.ages.sinceSnapshotMs.getOrElse(0L)),
    "incrementalSinceFullMs" -> (_.ages.sinceFullMs.getOrElse(0L)),
    "incrementalMergeCount" -> (_.merged.merges),
    "incrementalMergeMs" -> (_.merged.totalMs),
    "incrementalFullCount" -> (_.merged.fulls),
    "incrementalFullMs" -> (_.merged.fullMs),
    "incrementalIngestCount" -> (_.merged.ingests),
    "incrementalMergeFailures" -> (_.merged.failures),
    "incrementalUploadedBytes" -> (f => f.merged.uploadedBytes + f.committed.fold(0L)(_.delta.bytes)),
    "incrementalSharedFiles" -> (_.merges.sharedFiles),
    "incrementalNewFiles" -> (_.merges.newFiles),
    "incrementalOwnFiles" -> (_.merges.ownFiles),
    "incrementalLoadMs" -> (_.loadMs),
    "incrementalRestoreCount" -> (_.restored.fold(0L)(_ => 1L)),
    "incrementalRestoreChooseMs" -> (restore(_, _.phases.chooseMs)),
    "incrementalRestoreFetchMs" -> (restore(_, _.phases.fetchMs)),
    "incrementalRestoreVerifyMs" -> (restore(_, _.phases.verifyMs)),
    "incrementalRestorePredictedMs" -> (restore(_, _.predictedMs)),
    "incrementalRestoreDeltas" -> (restore(_, _.deltas)),
    "incrementalRestoreLocalFiles" -> (restore(_, _.localFiles)),
    "incrementalRestoreFetchedFiles" -> (restore(_, _.fetchedFiles)),
    "incrementalRestoreFetchedBytes" -> (restore(_, _.fetchedBytes)),
    "incrementalOnDemandBytes" -> (hydration(_, _.onDemandBytes)),
    "incrementalHydratedBytes" -> (hydration(_, _.hydratedBytes)),
    "incrementalHydrationLeftBytes" -> (hydration(_, _.leftBytes)),
    "incrementalVerifiedBytes" -> (_.verified.bytes),
    "incrementalVerificationLeftBytes" -> (_.verified.leftBytes),
    "incrementalDamagedFiles" -> (_.verified.damagedFiles),
    "incrementalIndexHits" -> (_.lookUps.hits),
    "incrementalIndexMisses" -> (_.lookUps.misses),
    "incrementalBaseFilters" -> (_.lookUps.filters),
    "incrementalBaseBlocks" -> (_.lookUps.blocks),
    "incrementalBlocksAhead" -> (_.lookUps.ahead),
    "incrementalOverlayBytes" -> (_.memory.memtableBytes),
    "incrementalRecentBytes" -> (_.memory.recentBytes),
    "incrementalIndexBytes" -> (_.memory.indexBytes),
    "incrementalBaseBytes" -> (_.memory.baseBytes),
    "incrementalSpilledBytes" -> (_.memory.spilledBytes),
    "incrementalInternalKeys" -> (_.families.internalKeys),
    "incrementalColumnFamilies" -> (_.families.count(internal = false)),
    "incrementalInternalColumnFamilies" -> (_.families.count(internal = true)))

  private val reported: Seq[(StateStoreCustomMetric, Reader)] =
    Model.progress.map(metric => custom(metric) -> readers(metric.name))

  val custom: Seq[StateStoreCustomMetric] = reported.map(_._1)

  def of(id: StateStoreId, batch: BatchMetrics): StateStoreMetrics = {
    val memory = batch.memory
    ReportedMetrics.of(
      id,
      batch.keys,
      memory.memtableBytes + memory.recentBytes + memory.indexBytes + memory.baseBytes,
      reported.map { case (metric, read) => ofStore(metric, id) -> read(batch) }.toMap,
      batch.merges.lastSnapshotVersion)
  }

  /** Spark adds up the figures of the stores of a join that are of equal metrics, before it adds them to its own. */
  private def ofStore(metric: StateStoreCustomMetric, id: StateStoreId): StateStoreCustomMetric = metric match {
    case largest: StateStoreCustomMaxMetric => largest.copy(store = id.storeName)
    case other => other
  }

  private def custom(metric: ProgressMetric): StateStoreCustomMetric = {
    val description = s"State store: ${metric.meaning}"
    metric.kind match {
      case "sum" => StateStoreCustomSumMetric(metric.name, description)
      case "bytes" => StateStoreCustomSizeMetric(metric.name, description)
      case "time" => StateStoreCustomTimingMetric(metric.name, description)
      case "largest" => StateStoreCustomMaxMetric(metric.name, description)
      case "oldest" => StateStoreCustomMaxMetric(metric.name, description, "timing")
    }
  }
}

/**
 * A metric whose value over all tasks and their stores is the largest value; Spark's own metrics add the values up.
 */
final class MaxMetric(kind: String) extends SQLMetric(kind, 0L) {
  override def add(other: Long): Unit = if (other > value) set(other)

  override def copy(): MaxMetric = {
    val other = new MaxMetric(metricType)
    other.set(value)
    other
  }

  override def merge(other: AccumulatorV2[Long, Long]): Unit =
    if (!other.isZero) set(math.max(value, other.value))
}

/**
 * A figure of each store whose largest value is shown: an age, the length of a chain.
 *
 * @param store name of the store that the figure is of
 */
final case class StateStoreCustomMaxMetric(name: String, desc: String, kind: String = "sum", store: String = "")
    extends StateStoreCustomMetric {
  override def withNewDesc(desc: String): StateStoreCustomMaxMetric = copy(desc = desc)

  override def createSQLMetric(sparkContext: SparkContext): SQLMetric = {
    val metric = new MaxMetric(kind)
    metric.register(sparkContext, name = Some(desc), countFailedValues = false)
    metric
  }
}

/**
 * The metrics of a provider's stores. Each commit reports merges and verification since the commit before. For any
 * thread.
 */
private[incremental] final class ProviderMetrics(id: StateStoreId, local: LocalStore) {
  private var reportedMerges = MergeCounters()
  private var reportedVerified = VerificationCounters()

  /**
   * Returns the metrics of a store. Without `committed` they are the figures so far, and none of them counts as
   * reported.
   */
  def of(
      opened: OpenTransaction,
      committed: Option[CommittedVersion],
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
