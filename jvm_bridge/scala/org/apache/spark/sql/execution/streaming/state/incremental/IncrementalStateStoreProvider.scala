package org.apache.spark.sql.execution.streaming.state.incremental

import java.util.UUID

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration

import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.errors.QueryExecutionErrors
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.incremental.agent.{AgentException, AgentStore}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{ColumnFamilies, VersionId}
import org.apache.spark.sql.execution.streaming.state.incremental.local.{LocalStore, Opened}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.NativeHeap
import org.apache.spark.sql.execution.streaming.state.incremental.observed.{ObservedStore, StoreKey}
import org.apache.spark.sql.execution.streaming.state.incremental.release.{Driver, Jar, RowChecksums, SparkStateStoreProvider, StoreErrors}
import org.apache.spark.sql.execution.streaming.state.incremental.rows.{Codecs, FamilySchema, RowCodec}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType
import org.apache.spark.TaskContext
import org.apache.spark.util.{NextIterator, ShutdownHookManager}

/**
 * A state store provider that commits one immutable SST file per micro-batch and merges them into snapshots
 * in the background, out of the tasks' way.
 *
 * `init` does no I/O; the agent starts with the first store that is opened. Stores may be open at the same
 * time, in any threads: each has its own view. Errors of the agent reach the query as AgentException below
 * Spark's own errors for loading and committing.
 */
class IncrementalStateStoreProvider
  extends SparkStateStoreProvider with Logging {
  private var storeId: StateStoreId = _
  private var keySchema: StructType = _
  private var valueSchema: StructType = _

  private[incremental] var conf: StateStoreConf = _
  private[incremental] var hadoopConf: Configuration = _
  private[incremental] var families: FamilyRegistry = _
  private[incremental] var local: LocalStore = _
  private[incremental] var metrics: ProviderMetrics = _
  private[incremental] var observed: ObservedStore = _

  override def init(
      stateStoreId: StateStoreId,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useColumnFamilies: Boolean,
      storeConfs: StateStoreConf,
      hadoopConf: Configuration,
      useMultipleValuesPerKey: Boolean,
      stateSchemaProvider: Option[StateSchemaProvider]): Unit = {
    Jar.check()
    storeId = stateStoreId
    this.keySchema = keySchema
    this.valueSchema = valueSchema
    conf = storeConfs
    this.hadoopConf = hadoopConf
    require(!useMultipleValuesPerKey || useColumnFamilies,
      "Multiple values per key support requires column families to be enabled.")
    refuseRowChecksums()
    val codecs = new Codecs(conf.stateStoreEncodingFormat, stateSchemaProvider, useColumnFamilies)
    families = new FamilyRegistry(codecs, stateSchemaProvider, useColumnFamilies)
    val runId = Driver.runId(hadoopConf)
    val agent = new AgentStore(storeId, runId, conf, hadoopConf)
    val name = StateStoreProviderId(storeId, UUID.fromString(runId)).toString
    local = new LocalStore(name, agent, conf.enableStateStoreCheckpointIds, uploaded)
    metrics = new ProviderMetrics(storeId, local)
    val key = StoreKey(runId, storeId.operatorId, storeId.partitionId, storeId.storeName)
    observed = new ObservedStore(key, storeId.checkpointRootLocation, local, version =>
      if (conf.enableStateStoreCheckpointIds) CommittedIds.of(storeId, version, hadoopConf) else None)
    families.register(StateStore.DEFAULT_COL_FAMILY_NAME,
      FamilySchema(keyStateEncoderSpec, valueSchema, useMultipleValuesPerKey))
    // What is wrong with the schema shows here.
    families.codec(StateStore.DEFAULT_COL_FAMILY_NAME, ColumnFamilies.Default)
  }

  override def stateStoreId: StateStoreId = storeId

  override def getStore(
      version: Long,
      stateStoreCkptId: Option[String],
      forceSnapshotOnCommit: Boolean,
      loadEmpty: Boolean): StateStore = loading {
    if (version < 0) throw QueryExecutionErrors.unexpectedStateStoreVersion(version)
    if (loadEmpty) openEmpty(version, forceSnapshotOnCommit)
    else if (CurrentTask.isInQuery) open(versionId(version, stateStoreCkptId), readOnly = false, forceSnapshotOnCommit)
    else reading(version, stateStoreCkptId) { asked => // Spark 4.2 reads the stores of joins so
      val foundInLog = asked.id.isDefined && !conf.enableStateStoreCheckpointIds
      open(asked, readOnly = foundInLog, forceSnapshotOnCommit)
    }
  }

  override def getReadStore(version: Long, uniqueId: Option[String]): StateStore = loading {
    if (version < 0) throw QueryExecutionErrors.unexpectedStateStoreVersion(version)
    reading(version, uniqueId)(open(_, readOnly = true, forced = false))
  }

  override def upgradeReadStoreToWriteStore(
      readStore: ReadStateStore,
      version: Long,
      uniqueId: Option[String],
      forceSnapshotOnCommit: Boolean): StateStore = readStore match {
    case store: IncrementalStateStore =>
      assert(version == store.version,
        s"a read store of version ${store.version} cannot become the write store of version $version")
      assert(store.id == storeId, s"a read store of ${store.id} cannot become a write store of $storeId")
      if (!conf.enableStateStoreCheckpointIds && store.askedId.isDefined) {
        throw new IllegalStateException(s"version $version of $storeId was committed in checkpoint format 2, and " +
          s"this session can only read it: set ${SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION.key} to 2")
      }
      // The store belongs to the provider that opened it, even where Spark has replaced that one meanwhile.
      loading(store.upgrade(forceSnapshotOnCommit))
    case other =>
      throw new IllegalArgumentException(s"a ${other.getClass.getName} is no store of this provider")
  }

  override def replayStateFromSnapshot(
      snapshotVersion: Long,
      endVersion: Long,
      readOnly: Boolean,
      snapshotVersionStateStoreCkptId: Option[String],
      endVersionStateStoreCkptId: Option[String]): StateStore = loading {
    if (snapshotVersion < 1) throw QueryExecutionErrors.unexpectedStateStoreVersion(snapshotVersion)
    if (endVersion < snapshotVersion) throw QueryExecutionErrors.unexpectedStateStoreVersion(endVersion)
    def replay(asked: VersionId) = {
      val snapshot = versionId(snapshotVersion, snapshotVersionStateStoreCkptId)
      store(local.replay(snapshot, asked, readOnly, CurrentTask.attempt), asked, endVersion, readOnly, forced = false)
    }
    if (readOnly) reading(endVersion, endVersionStateStoreCkptId)(replay)
    else replay(versionId(endVersion, endVersionStateStoreCkptId))
  }

  override def getStateStoreChangeDataReader(
      startVersion: Long,
      endVersion: Long,
      colFamilyNameOpt: Option[String],
      endVersionStateStoreCkptId: Option[String])
    : NextIterator[(RecordType.Value, UnsafeRow, UnsafeRow, Long)] = {
    assert(startVersion >= 1)
    assert(endVersion >= startVersion)
    val name = colFamilyNameOpt.getOrElse(StateStore.DEFAULT_COL_FAMILY_NAME)
    reading(endVersion, endVersionStateStoreCkptId) { end =>
      val codec = familyAt(name, end)
      val deltas = local.deltas(end, startVersion)
      new ChangeFeed(deltas.files, codec, () => local.releaseDeltas(deltas))
    }
  }

  /** Never throws: Spark would close the provider in the middle of a batch. */
  override protected def maintain(): Unit =
    try {
      NativeHeap.trim()
      local.cleanup()
    } catch {
      case NonFatal(e) if ShutdownHookManager.inShutdown() => logDebug(s"Cleanup of ${local.name} ended", e)
      case NonFatal(e) =>
        logWarning(s"Cleanup of ${local.name} failed; the next maintenance tries again", e)
    }

  override def close(): Unit = if (local != null) {
    observed.close()
    local.close()
  }

  override def supportedCustomMetrics: Seq[StateStoreCustomMetric] = StoreMetrics.custom

  /**
   * An empty store above version 0, in either checkpoint format; its commit is the version after `version`. The
   * checkpoint must have nothing of this store: no attempt at a version is told from another here.
   */
  private[incremental] def getEmptyStore(version: Long): StateStore = loading(emptyStore(version, forced = false))

  // --- what its stores ask

  private[incremental] def checkRowFormat(key: UnsafeRow, value: UnsafeRow): Unit =
    StoreErrors.checkRowFormat(key, keySchema, value, valueSchema, storeId, conf)

  // --- opening

  private def versionId(version: Long, id: Option[String]): VersionId =
    if (version == 0) VersionId.empty
    else VersionId(version, if (conf.enableStateStoreCheckpointIds) id else None)

  /**
   * Does something that changes nothing with a version. Where the session does not give ids (checkpoint format
   * 1) and the query has committed the version under one, the id is that in the query's commit log.
   */
  private def reading[T](version: Long, id: Option[String])(body: VersionId => T): T = {
    val asked = versionId(version, id)
    try body(asked)
    catch {
      case e: AgentException
          if asked.id.isEmpty && e.option.contains(SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION.key) =>
        val committed = CommittedIds.of(storeId, version, hadoopConf).getOrElse(throw e)
        logInfo(s"Version $version of $storeId is '$committed', by the commit log of its query")
        body(VersionId(version, Some(committed)))
    }
  }

  private def open(asked: VersionId, readOnly: Boolean, forced: Boolean): IncrementalStateStore =
    store(local.begin(asked, readOnly, CurrentTask.attempt), asked, asked.number, readOnly, forced)

  private def openEmpty(version: Long, forced: Boolean): IncrementalStateStore = {
    if (!conf.enableStateStoreCheckpointIds) {
      throw new UnsupportedOperationException("an empty store above version 0 needs Spark's checkpoint " +
        "format 2: set spark.sql.streaming.stateStore.checkpointFormatVersion to 2")
    }
    emptyStore(version, forced)
  }

  private def emptyStore(version: Long, forced: Boolean): IncrementalStateStore = {
    val asked = VersionId(version, None)
    store(local.beginEmpty(asked), asked, version, readOnly = false, forced)
  }

  private def store(
      opened: Opened,
      asked: VersionId,
      version: Long,
      readOnly: Boolean,
      forced: Boolean): IncrementalStateStore = {
    val made =
      try new IncrementalStateStore(this, opened, asked, version, readOnly, forced)
      catch {
        case e: Throwable =>
          opened.transaction.abort()
          local.ended()
          throw e
      }
    Option(TaskContext.get()).foreach(made.endWith)
    made
  }

  private def loading[T](body: => T): T =
    try body
    catch {
      case e: OutOfMemoryError =>
        throw QueryExecutionErrors.notEnoughMemoryToLoadStore(
          storeId.toString, "ROCKSDB_STORE_PROVIDER", e)
      case e: Throwable => throw StoreErrors.cannotLoadStore(e)
    }

  private def familyAt(name: String, version: VersionId): RowCodec = {
    val family =
      if (name == StateStore.DEFAULT_COL_FAMILY_NAME) Some(ColumnFamilies.Default)
      else {
        val reader = local.begin(version, readOnly = true, CurrentTask.attempt)
        reader.transaction.abort()
        local.ended()
        reader.families.get(name)
      }
    family.flatMap(families.codec(name, _)).getOrElse(
      throw StateStoreErrors.unsupportedOperationOnMissingColumnFamily("getStateStoreChangeDataReader", name))
  }

  private def uploaded(version: Long): Unit = Driver.reportSnapshot(conf, version, storeId, hadoopConf)

  private def refuseRowChecksums(): Unit =
    if (RowChecksums.areAsked(conf)) {
      throw new UnsupportedOperationException("spark.sql.streaming.stateStore.rowChecksum.enabled is not " +
        "supported by IncrementalStateStoreProvider, whose files carry checksums of their own that every " +
        "restore verifies. Set it to false.")
    }
}
