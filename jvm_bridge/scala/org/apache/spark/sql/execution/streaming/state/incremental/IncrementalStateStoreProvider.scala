package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.FileNotFoundException
import java.nio.charset.StandardCharsets
import java.nio.file.{Path => LocalPath}
import java.util.{Arrays, Locale, UUID}
import java.util.concurrent.ConcurrentHashMap
import java.util.regex.Pattern

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal
import scala.util.hashing.MurmurHash3

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.{SparkEnv, TaskContext}
import org.apache.spark.internal.Logging
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.errors.QueryExecutionErrors
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.incremental.agent.{AgentException, AgentStore}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{
  ColumnFamilies, ColumnFamily, Json, UnknownFormatException, VersionId
}
import org.apache.spark.sql.execution.streaming.state.incremental.local.{LocalStore, OpenTransaction, TaskAttempt}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.NativeHeap
import org.apache.spark.sql.execution.streaming.state.incremental.observed.{ObservedStore, ReportReceiver, StoreKey}
import org.apache.spark.sql.execution.streaming.state.incremental.release.{
  Driver, Jar, RowChecksums, SparkStateStoreProvider, StoreErrors
}
import org.apache.spark.sql.execution.streaming.state.incremental.release.SparkNames.{
  CheckpointFileManager, StreamExecution, StreamingQueryWrapper
}
import org.apache.spark.sql.execution.streaming.state.incremental.rows.{Codecs, FamilySchema, RowCodec}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.DeltaReader
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.streaming.StreamingQueryListener
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.util.{NextIterator, ShutdownHookManager}

// The provider that Spark names, and what it needs of a query: ids of committed versions, the present task, the
// registered column families, the change feed, and the listener that tells of a query with another provider than its
// session's.

/**
 * A state store provider that commits one immutable SST file per micro-batch and merges these files into snapshots in
 * the background, outside the tasks.
 *
 * `init` does no I/O; the agent starts with the first store that is opened. Several stores may be open at the same
 * time, in any threads: each has its own view. An error of the agent reaches the query as an AgentException below
 * Spark's own errors for loading and committing.
 */
class IncrementalStateStoreProvider extends SparkStateStoreProvider with Logging {
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
    observed = new ObservedStore(key, storeId.checkpointRootLocation, local,
      version =>
        if (conf.enableStateStoreCheckpointIds) CommittedIds.of(storeId, version, hadoopConf) else None)
    families.register(StateStore.DEFAULT_COL_FAMILY_NAME,
      FamilySchema(keyStateEncoderSpec, valueSchema, useMultipleValuesPerKey))
    // Shows errors of the schema now, not in the first batch.
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
    else reading(version, stateStoreCkptId) { asked => // Spark 4.2 reads the stores of joins with this call
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
      // The store belongs to the provider that opened it, even if Spark has replaced that provider since.
      loading(store.upgrade(forceSnapshotOnCommit))
    case other =>
      throw new IllegalArgumentException(s"a ${other.getClass.getName} is not a store of this provider")
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
      endVersionStateStoreCkptId: Option[String]): NextIterator[(RecordType.Value, UnsafeRow, UnsafeRow, Long)] = {
    assert(startVersion >= 1)
    assert(endVersion >= startVersion)
    val name = colFamilyNameOpt.getOrElse(StateStore.DEFAULT_COL_FAMILY_NAME)
    reading(endVersion, endVersionStateStoreCkptId) { end =>
      val codec = familyAt(name, end)
      val deltas = local.deltas(end, startVersion)
      new ChangeFeed(deltas.files, codec, () => local.releaseDeltas(deltas))
    }
  }

  /** Does maintenance. Never throws, because Spark would close the provider in the middle of a batch. */
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
    try observed.close()
    finally local.close()
  }

  override def supportedCustomMetrics: Seq[StateStoreCustomMetric] = StoreMetrics.custom

  /**
   * Opens an empty store above version 0, in either checkpoint format.
   *
   * The checkpoint must have no file of this store: this call does not tell apart attempts at one version.
   *
   * @param version the version of the empty store; its commit makes the version after it
   */
  private[incremental] def getEmptyStore(version: Long): StateStore = loading(emptyStore(version, forced = false))

  // --- for the stores

  private[incremental] def checkRowFormat(key: UnsafeRow, value: UnsafeRow): Unit =
    StoreErrors.checkRowFormat(key, keySchema, value, valueSchema, storeId, conf)

  // --- opening

  private def versionId(version: Long, id: Option[String]): VersionId =
    if (version == 0) VersionId.empty
    else VersionId(version, if (conf.enableStateStoreCheckpointIds) id else None)

  /**
   * Runs a body that reads a version. If the session gives no ids (checkpoint format 1) and the query has committed the
   * version under an id, the body gets the id from the query's commit log.
   */
  private def reading[T](version: Long, id: Option[String])(body: VersionId => T): T = {
    val requested = versionId(version, id)
    try body(requested)
    catch {
      case e: AgentException
          if requested.id.isEmpty && e.option.contains(SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION.key) =>
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
    val requested = VersionId(version, None)
    store(local.beginEmpty(requested), requested, version, readOnly = false, forced)
  }

  private def store(
      opened: OpenTransaction,
      asked: VersionId,
      version: Long,
      readOnly: Boolean,
      forced: Boolean): IncrementalStateStore = {
    val opening =
      try new IncrementalStateStore(this, opened, asked, version, readOnly, forced)
      catch {
        case e: Throwable =>
          try {
            try opened.transaction.abort()
            finally local.ended()
          } catch { case other: Throwable => e.addSuppressed(other) }
          throw e
      }
    Option(TaskContext.get()).foreach { task =>
      opening.endWith(task)
      SparseStores.add(opening, task)
    }
    opening
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
    if (RowChecksums.areEnabled(conf)) {
      throw new UnsupportedOperationException("spark.sql.streaming.stateStore.rowChecksum.enabled is not " +
        "supported by IncrementalStateStoreProvider, whose files carry checksums of their own that every " +
        "restore verifies. Set it to false.")
    }
}

/**
 * The ids under which a query committed its stores (checkpoint format 2), read from its commit log.
 *
 * Spark's readers of state pass the ids on only in a session that has this format itself. The log has them in any
 * session.
 */
private[incremental] object CommittedIds {

  /** Returns the id of a version of the store; None if the log has no entry for it, or an entry without ids. */
  def of(store: StateStoreId, version: Long, hadoopConf: Configuration): Option[String] = {
    val state = new Path(store.checkpointRootLocation)
    val entry = new Path(state.getParent, s"commits/${version - 1}")
    for {
      text <- secondLine(entry, hadoopConf)
      operators <- Option(Json.parse(text).get("stateUniqueIds")).filter(_.isObject)
      partitions <- Option(operators.get(store.operatorId.toString))
      ids <- Option(partitions.get(store.partitionId.toInt)).map(_.elements.asScala.map(_.asText).toSeq)
      id <- if (ids.length == 1) ids.headOption else ids.lift(indexOf(store, state, hadoopConf))
    } yield id
  }

  /** Returns the position of the store in the order of the operator's metadata; -1 if it is not there. */
  private def indexOf(store: StateStoreId, state: Path, hadoopConf: Configuration): Int = {
    val metadata = new Path(state, s"${store.operatorId}/_metadata/metadata")
    val stores = secondLine(metadata, hadoopConf).map(Json.parse).flatMap(json => Option(json.get("stateStoreInfo")))
    stores.fold(-1)(_.elements.asScala.map(Json.text(_, "storeName").getOrElse("")).indexOf(store.storeName))
  }

  /** Reads the second line of a file of Spark's metadata, which is JSON; the first line is its version. */
  private def secondLine(path: Path, hadoopConf: Configuration): Option[String] =
    try {
      val in = path.getFileSystem(hadoopConf).open(path)
      try new String(in.readAllBytes(), StandardCharsets.UTF_8).linesIterator.drop(1).nextOption()
      finally in.close()
    } catch {
      case _: FileNotFoundException => None
    }
}

/** The Spark task that the calling thread works for. */
private[incremental] object CurrentTask {
  /** The value of `StreamExecution.QUERY_ID_KEY`, which releases of Spark have in different packages. */
  private val queryIdKey = "sql.streaming.queryId"

  /** Returns true if the task belongs to a streaming query, which Spark names in its tasks, or if there is no task. */
  def isInQuery: Boolean = Option(TaskContext.get()).forall(_.getLocalProperty(queryIdKey) != null)

  /** Returns the attempt of the task; None if there is no task. */
  def attempt: Option[TaskAttempt] = Option(TaskContext.get()).map { context =>
    TaskAttempt(application, context.taskAttemptId(),
      again = context.attemptNumber() > 0 || context.stageAttemptNumber() > 0)
  }

  /** Returns 8 hexadecimal digits that stand for the Spark application in the ids of attempts. */
  private def application: String = {
    val id = Option(SparkEnv.get).flatMap(_.conf.getOption("spark.app.id")).getOrElse("")
    String.format(Locale.ROOT, "%08x", Int.box(MurmurHash3.stringHash(id)))
  }
}

/**
 * The column families that Spark registered with a provider: their schemas, and the rules for their names. For any
 * thread.
 *
 * @param several true if the store may have families other than `default`
 */
private[incremental] final class FamilyRegistry(
    codecs: Codecs,
    schemas: Option[StateSchemaProvider],
    val several: Boolean) {
  private val families = new ConcurrentHashMap[String, FamilySchema]

  def register(name: String, schema: FamilySchema): Unit = {
    schemas.foreach {
      case tests: TestStateSchemaProvider =>
        tests.captureSchema(name, schema.keySpec.keySchema, schema.values)
      case _ =>
    }
    families.put(name, schema)
  }

  /** Names of the families whose keys are rows with columns of these types, encoded as a whole. */
  def withKeysOf(types: Seq[DataType]): Seq[String] = families.asScala.iterator.collect {
    case (name, FamilySchema(NoPrefixKeyStateEncoderSpec(schema), _, _)) if areTypes(schema, types) => name
  }.toSeq

  private def areTypes(schema: StructType, types: Seq[DataType]): Boolean =
    schema.length == types.length && schema.fields.zip(types).forall { case (column, kind) =>
      DataType.equalsIgnoreCompatibleNullability(kind, column.dataType)
    }

  def unregister(name: String): Unit = families.remove(name)

  /** Returns a new codec of a family; None if Spark has not registered the family. */
  def codec(name: String, family: ColumnFamily): Option[RowCodec] =
    Option(families.get(name)).map(codecs.make(name, family, _))

  /** Throws the error of Spark's stores if the family is not `default` and cannot be used. */
  def checkUse(operation: String, name: String): Unit =
    if (name != StateStore.DEFAULT_COL_FAMILY_NAME) {
      if (!several) throw disabled(operation)
      if (name.isEmpty || name.trim != name) {
        throw StateStoreErrors.cannotUseColumnFamilyWithInvalidName(operation, name)
      }
    }

  /** Throws the error of Spark's stores if the family cannot be made or removed. */
  def checkName(operation: String, name: String, isInternal: Boolean): Unit = {
    if (!several) throw disabled(operation)
    if (name.isEmpty || name.trim != name || (name == StateStore.DEFAULT_COL_FAMILY_NAME && !isInternal)) {
      throw StateStoreErrors.cannotUseColumnFamilyWithInvalidName(operation, name)
    }
    if (!isInternal && name.charAt(0) == '$') {
      throw StateStoreErrors.cannotCreateColumnFamilyWithReservedChars(name)
    }
  }

  private def disabled(operation: String): Throwable = StateStoreErrors.unsupportedOperationException(
    operation, "multiple column families is disabled in IncrementalStateStoreProvider")
}

/**
 * The changes of one column family, read from the deltas of consecutive versions: (put, merge or delete, key, value or
 * null, batch id). Each batch shows first the changes that its own later changes replaced, then the last change of each
 * key. A list of values is a put of the first value and a merge of each other one, as in Spark's store; so is each value
 * that was appended to a list. They come in order of time. For one thread, which gets the same row objects again.
 *
 * @param deltas versions and local files of the deltas, oldest first
 * @param codec the codec of the column family
 * @param release called once, when the files are not needed any more
 */
final class ChangeFeed(deltas: Seq[(Long, LocalPath)], codec: RowCodec, release: () => Unit)
    extends NextIterator[(RecordType.Value, UnsafeRow, UnsafeRow, Long)] {
  private val from = ColumnFamilies.from(codec.family.id)
  private val unread = deltas.iterator
  private var version = 0L
  private var reader: DeltaReader = _

  /** The values of a list behind those that were shown. */
  private var values: Iterator[UnsafeRow] = Iterator.empty

  override protected def getNext(): (RecordType.Value, UnsafeRow, UnsafeRow, Long) = {
    if (values.hasNext) return change(RecordType.MERGE_RECORD, values.next())
    while (advance()) {
      if (Arrays.equals(reader.key, 0, RowCodec.PrefixBytes, from, 0, RowCodec.PrefixBytes)) return change()
    }
    finished = true
    null
  }

  override protected def close(): Unit =
    try closeReader()
    finally release()

  private def closeReader(): Unit = {
    if (reader != null) reader.close()
    reader = null
  }

  private def change(): (RecordType.Value, UnsafeRow, UnsafeRow, Long) =
    if (reader.value == null) (RecordType.DELETE_RECORD, codec.decodeKey(reader.key), null, version - 1)
    else if (!codec.multipleValues) change(RecordType.PUT_RECORD, codec.decodeValue(reader.value))
    else {
      values = codec.decodeValues(reader.value)
      change(if (reader.isAppended) RecordType.MERGE_RECORD else RecordType.PUT_RECORD, values.next())
    }

  private def change(kind: RecordType.Value, value: UnsafeRow): (RecordType.Value, UnsafeRow, UnsafeRow, Long) =
    (kind, codec.decodeKey(reader.key), value, version - 1)

  private def advance(): Boolean = {
    while (reader == null || !reader.advance()) {
      closeReader()
      if (!unread.hasNext) return false
      val (next, file) = unread.next()
      version = next
      reader =
        try new DeltaReader(file.toFile)
        catch { case e: UnknownFormatException => throw AgentException.of(e) }
    }
    true
  }
}

/**
 * A listener that logs an error when a query goes on with another state store than the session asks for: Spark keeps
 * the provider class in the query's offset log and ignores the session's option. Set it with
 * `spark.sql.streaming.streamingQueryListeners`; it never fails a query.
 */
final class PinnedProviderListener extends StreamingQueryListener with Logging {
  import StreamingQueryListener._

  // Spark makes this listener on the driver, for a session's first query, so the tab needs no option.
  private val receiver = ReportReceiver.start()

  // Spark calls this in the query's own thread, whose session is the active one.
  override def onQueryStarted(event: QueryStartedEvent): Unit =
    try {
      val session = SparkSession.active
      val providerClass = session.conf.get(SQLConf.STATE_STORE_PROVIDER_CLASS.key)
      val own = classOf[IncrementalStateStoreProvider].getName
      val execution = session.streams.get(event.id) match {
        case wrapper: StreamingQueryWrapper => Some(wrapper.streamingQuery)
        case execution: StreamExecution => Some(execution)
        case _ => None
      }
      execution.foreach { query =>
        // A query whose checkpoint is this store's has its options and operators, whatever the session asks for.
        if (providerClass == own || PinnedProviderListener.pinned(query).contains(own)) {
          receiver.foreach(_.started(query))
        }
        if (providerClass == own) check(query, providerClass)
      }
    } catch {
      case NonFatal(e) => logDebug("Failed to read the state store of a query from its offset log", e)
    }

  private def check(query: StreamExecution, asked: String): Unit =
    PinnedProviderListener.pinned(query).filter(_ != asked).foreach { other =>
      logError(s"The query ${Option(query.name).getOrElse(query.id)} does NOT use $asked: the query was started " +
        s"with $other, and Spark keeps that for the life of its checkpoint " +
        s"${query.resolvedCheckpointRoot}. Stop it and move its state with `state-store migrate`, or begin with a new " +
        "checkpoint location, to use the incremental state store, or set " +
        s"${SQLConf.STATE_STORE_PROVIDER_CLASS.key} back for this query to avoid this message.")
    }

  override def onQueryProgress(event: QueryProgressEvent): Unit = receiver.foreach(_.progressed(event.progress))

  override def onQueryTerminated(event: QueryTerminatedEvent): Unit =
    receiver.foreach(_.terminated(event.runId.toString, event.exception))
}

private object PinnedProviderListener {
  private val Entry =
    (Pattern.quote("\"" + SQLConf.STATE_STORE_PROVIDER_CLASS.key + "\"") + "\\s*:\\s*\"([^\"]+)\"").r

  /** Returns the provider class in the newest entry of the query's offset log. */
  def pinned(query: StreamExecution): Option[String] = {
    val offsets = new Path(query.resolvedCheckpointRoot, "offsets")
    val files = CheckpointFileManager.create(offsets, query.sparkSession.sessionState.newHadoopConf())
    if (!files.exists(offsets)) None
    else {
      val batches = files.list(offsets).map(_.getPath).filter(_.getName.forall(_.isDigit))
      batches.maxByOption(_.getName.toLong).flatMap { newest =>
        val in = files.open(newest)
        try Entry.findFirstMatchIn(new String(in.readAllBytes(), StandardCharsets.UTF_8)).map(_.group(1))
        finally in.close()
      }
    }
  }
}
