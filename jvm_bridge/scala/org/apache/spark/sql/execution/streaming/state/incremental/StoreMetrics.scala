package org.apache.spark.sql.execution.streaming.state.incremental

import org.apache.spark.SparkContext
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.incremental.agent.{
  ChainSizes, HydrationCounters, RestoreAnswer, SnapshotAges
}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.ColumnFamilies
import org.apache.spark.sql.execution.streaming.state.incremental.local.{
  Committed, LocalStore, MergeCounters, Opened, VerificationCounters
}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.MemoryUse
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
    committed: Option[Committed],
    merged: MergeCounters,
    merges: MergeCounters,
    verified: VerificationCounters,
    ages: SnapshotAges,
    forcedSnapshot: Boolean)

/** The custom metrics of the state store, as Spark shows them in a query's progress and in its UI. */
object StoreMetrics {
  private type Reader = BatchMetrics => Long

  private def sum(name: String, desc: String)(read: Reader) = StateStoreCustomSumMetric(name, desc) -> read
  private def size(name: String, desc: String)(read: Reader) = StateStoreCustomSizeMetric(name, desc) -> read
  private def time(name: String, desc: String)(read: Reader) =
    StateStoreCustomTimingMetric(name, desc) -> read
  private def largest(name: String, desc: String)(read: Reader) =
    StateStoreCustomMaxMetric(name, desc) -> read
  private def oldest(name: String, desc: String)(read: Reader) =
    StateStoreCustomMaxMetric(name, desc, "timing") -> read

  private def depends(batch: BatchMetrics, read: ChainSizes => Long): Long =
    batch.committed.fold(0L)(made => read(made.answer.chain))
  private def hydration(batch: BatchMetrics, read: HydrationCounters => Long): Long =
    batch.committed.fold(0L)(made => read(made.answer.hydration))
  private def restore(batch: BatchMetrics, read: RestoreAnswer => Long): Long =
    batch.restored.fold(0L)(read)

  private val commits: Seq[(StateStoreCustomMetric, Reader)] = Seq(
    size("incrementalDeltaBytes", "State store: bytes of the deltas that the batch committed")(
      _.committed.fold(0L)(_.delta.bytes)),
    sum("incrementalDeltaPuts", "State store: records that put in these deltas")(
      _.committed.fold(0L)(_.delta.puts)),
    sum("incrementalDeltaRemoves", "State store: records that remove in these deltas")(
      _.committed.fold(0L)(_.delta.removes)),
    time("incrementalCommitWriteMs", "State store: commit - time to sort and write the delta locally")(
      _.committed.fold(0L)(_.writeMs)),
    time("incrementalCommitStoreMs", "State store: commit - time until the delta is in checkpoint storage")(
      _.committed.fold(0L)(_.commitMs)),
    sum("incrementalForcedSnapshots", "State store: stores whose snapshot Spark forced at the commit")(f =>
      if (f.forcedSnapshot) 1 else 0))

  private val chain: Seq[(StateStoreCustomMetric, Reader)] = Seq(
    largest("incrementalChainDeltas", "State store: deltas since the newest snapshot (maximum over stores)")(
      depends(_, _.deltas)),
    largest("incrementalDeltasSinceFull", "State store: deltas since the newest full checkpoint (maximum over stores)")(
      depends(_, _.deltasSinceFull)),
    largest("incrementalMergesSinceFull", "State store: merges since the newest full checkpoint (maximum over stores)")(
      depends(_, _.mergesSinceFull)),
    sum("incrementalChainFiles", "State store: files that the newest checkpoint needs")(
      depends(_, _.files)),
    size("incrementalChainBytes", "State store: bytes of these files")(depends(_, _.bytes)),
    oldest("incrementalSinceSnapshotMs", "State store: time since the newest snapshot (maximum over stores)")(
      _.ages.sinceSnapshotMs.getOrElse(0L)),
    oldest("incrementalSinceFullMs", "State store: time since the newest full checkpoint (maximum over stores)")(
      _.ages.sinceFullMs.getOrElse(0L)))

  private val merges: Seq[(StateStoreCustomMetric, Reader)] = Seq(
    sum("incrementalMergeCount", "State store: merges that published since the batch before")(
      _.merged.merges),
    time("incrementalMergeMs", "State store: duration of these merges")(_.merged.totalMs),
    sum("incrementalFullCount", "State store: full checkpoints among them")(_.merged.fulls),
    time("incrementalFullMs", "State store: duration of these full checkpoints")(_.merged.fullMs),
    sum("incrementalIngestCount", "State store: merges that only freed memory since then")(
      _.merged.ingests),
    sum("incrementalMergeFailures", "State store: merges that failed since then")(
      _.merged.failures),
    size("incrementalUploadedBytes", "State store: bytes uploaded by deltas and merges since then")(f =>
      f.merged.uploadedBytes + f.committed.fold(0L)(_.delta.bytes)),
    sum("incrementalSharedFiles", "State store: files that the newest snapshot shares with older ones")(
      _.merges.sharedFiles),
    sum("incrementalNewFiles", "State store: files that the newest snapshot uploaded")(_.merges.newFiles),
    sum("incrementalOwnFiles", "State store: files that only the newest snapshot needs")(_.merges.ownFiles))

  private val loads: Seq[(StateStoreCustomMetric, Reader)] = Seq(
    time("incrementalLoadMs", "State store: load - time to open the version that the batch began on")(
      _.loadMs),
    sum("incrementalRestoreCount", "State store: load - stores restored from checkpoint storage")(
      _.restored.fold(0L)(_ => 1L)),
    time("incrementalRestoreChooseMs", "State store: restore - time to choose the files")(
      restore(_, _.phases.chooseMs)),
    time("incrementalRestoreFetchMs", "State store: restore - time to fetch them")(
      restore(_, _.phases.fetchMs)),
    time("incrementalRestoreVerifyMs", "State store: restore - time to verify their checksums")(
      restore(_, _.phases.verifyMs)),
    time("incrementalRestoreIngestMs", "State store: restore - time to put the database together")(
      restore(_, _.phases.ingestMs)),
    time("incrementalRestorePredictedMs", "State store: restore - time that was predicted for it")(
      restore(_, _.predictedMs)),
    sum("incrementalRestoreDeltas", "State store: restore - deltas after the snapshot")(restore(_, _.deltas)),
    sum("incrementalRestoreLocalFiles", "State store: restore - files found on local disk")(
      restore(_, _.localFiles)),
    sum("incrementalRestoreFetchedFiles", "State store: restore - files read from checkpoint storage")(
      restore(_, _.fetchedFiles)),
    size("incrementalRestoreFetchedBytes", "State store: restore - bytes read from checkpoint storage")(
      restore(_, _.fetchedBytes)),
    size("incrementalOnDemandBytes", "State store: lazy restore - bytes fetched because a row was read")(
      hydration(_, _.onDemandBytes)),
    size("incrementalHydratedBytes", "State store: lazy restore - bytes fetched in the background")(
      hydration(_, _.hydratedBytes)),
    size("incrementalHydrationLeftBytes", "State store: lazy restore - bytes still to be fetched")(
      hydration(_, _.leftBytes)),
    size("incrementalHydrationWithoutRoomBytes",
      "State store: lazy restore - bytes among them for which hydrationDiskBudget has no room")(
      hydration(_, _.withoutRoomBytes)),
    size("incrementalVerifiedBytes", "State store: background verification - bytes since the batch before")(
      _.verified.bytes),
    size("incrementalVerificationLeftBytes", "State store: background verification - bytes still to be read")(
      _.verified.leftBytes),
    sum("incrementalDamagedFiles",
      "State store: background verification - files found damaged since the batch before")(
      _.verified.damagedFiles))

  private val memory: Seq[(StateStoreCustomMetric, Reader)] = Seq(
    sum("incrementalIndexHits", "State store: look-ups answered from memory")(
      _.lookUps.hits),
    sum("incrementalIndexMisses", "State store: look-ups that went to the base")(_.lookUps.misses),
    sum("incrementalBaseFilters", "State store: filters of the base's files that these asked")(
      _.lookUps.filters),
    sum("incrementalBaseBlocks", "State store: blocks of the base's files that these read")(
      _.lookUps.blocks),
    sum("incrementalBlocksAhead", "State store: lazy restore - blocks fetched together, before they were read")(
      _.lookUps.ahead),
    size("incrementalOverlayBytes", "State store: memory of changes not yet committed")(
      _.memory.memtableBytes),
    size("incrementalRecentBytes", "State store: memory of recent versions")(_.memory.recentBytes),
    size("incrementalIndexBytes", "State store: memory of the index over them")(_.memory.indexBytes),
    size("incrementalBaseBytes", "State store: memory of RocksDB's cache for compressed bases")(
      _.memory.baseBytes),
    size("incrementalSpilledBytes", "State store: recent versions in memory-mapped files")(
      _.memory.spilledBytes),
    sum("incrementalInternalKeys", "State store: keys of internal column families")(_.families.internalKeys),
    sum("incrementalColumnFamilies", "State store: external column families")(
      _.families.count(internal = false)),
    sum("incrementalInternalColumnFamilies", "State store: internal column families")(
      _.families.count(internal = true)))

  private val readers: Seq[(StateStoreCustomMetric, Reader)] = commits ++ chain ++ merges ++ loads ++ memory

  val custom: Seq[StateStoreCustomMetric] = readers.map(_._1)

  def of(id: StateStoreId, batch: BatchMetrics): StateStoreMetrics = {
    val memory = batch.memory
    ReportedMetrics.of(
      id,
      batch.keys,
      memory.memtableBytes + memory.recentBytes + memory.indexBytes + memory.baseBytes,
      readers.map { case (metric, read) => metric -> read(batch) }.toMap,
      batch.merges.lastSnapshotVersion)
  }
}

/** A metric whose value over all tasks is the largest value of a task; Spark's own metrics add the values up. */
final class MaxMetric(kind: String) extends SQLMetric(kind, 0L) {
  override def copy(): MaxMetric = {
    val other = new MaxMetric(metricType)
    other.set(value)
    other
  }

  override def merge(other: AccumulatorV2[Long, Long]): Unit =
    if (!other.isZero) set(math.max(value, other.value))
}

/** A figure of each store whose largest value is shown: an age, the length of a chain. */
final case class StateStoreCustomMaxMetric(name: String, desc: String, kind: String = "sum")
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
