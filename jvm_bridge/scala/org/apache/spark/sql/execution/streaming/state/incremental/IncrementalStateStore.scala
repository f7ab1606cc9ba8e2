package org.apache.spark.sql.execution.streaming.state.incremental

import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.errors.QueryExecutionErrors
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{ColumnFamilies, VersionId}
import org.apache.spark.sql.execution.streaming.state.incremental.local.{CommittedVersion, OpenTransaction}
import org.apache.spark.sql.execution.streaming.state.incremental.release.{
  CommitReport, Driver, ReportedMetrics, SparkStateStore, Tasks
}
import org.apache.spark.sql.execution.streaming.state.incremental.rows.{
  FamilySchema, RowCodec, RowIterator, ThreadCodecs, ValuesIterator
}
import org.apache.spark.sql.execution.streaming.state.incremental.transaction.{LookUps, Scan, Transaction}
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.TaskContext

/**
 * The view of a store at a version that a task has, for reading or for making the next version.
 *
 * Any thread may read and write rows: Spark lets two threads do so at a time if it sends groups to Python in one and
 * takes results in the other. The next call of a thread reuses the rows that the call before returned. `abort` and
 * `release` come from the threads of Spark's task listeners. After commit, abort or release every operation but
 * `metrics` throws.
 */
final class IncrementalStateStore private[incremental] (
    private[incremental] val provider: IncrementalStateStoreProvider,
    opened: OpenTransaction,
    asked: VersionId,
    shownVersion: Long,
    private var readOnly: Boolean,
    private var forceSnapshot: Boolean)
    extends SparkStateStore with Logging {
  import IncrementalStateStore._

  private val local = provider.local
  private var transaction = opened.transaction
  private var start = opened.start
  // The read transaction of an upgraded store: scans that began in it may still run.
  private var earlier: Option[Transaction] = None
  private var families = opened.families
  private val codecs = new ThreadCodecs(makeCodec)
  @volatile private var state: State = Updating
  private var rowsToCheck = !provider.families.several && provider.conf.formatValidationEnabled
  private var committed: Option[CommittedVersion] = None

  /** The metrics of the committed batch; read only after the commit. */
  private lazy val figures: StateStoreMetrics = {
    val commit = committed.get
    provider.metrics.of(opened, committed, commit.keys, commit.families, commit.lookUps, forceSnapshot)
  }

  override def id: StateStoreId = provider.stateStoreId

  /** The id of the version that the store was opened at; None if Spark gave none. */
  private[incremental] def askedId: Option[String] = asked.id

  override def version: Long = shownVersion

  // --- single rows

  override def get(key: UnsafeRow, colFamilyName: String): UnsafeRow = {
    val codec = open("get", colFamilyName)
    notNull(key)
    val value = codec.decodeValue(transaction.get(codec.encodeKey(key)))
    if (rowsToCheck && value != null) checkRow(key, value)
    value
  }

  override def keyExists(key: UnsafeRow, colFamilyName: String): Boolean = {
    val codec = open("keyExists", colFamilyName)
    notNull(key)
    transaction.contains(codec.encodeKey(key))
  }

  override def multiGet(keys: Array[UnsafeRow], colFamilyName: String): Iterator[UnsafeRow] = {
    val codec = open("multiGet", colFamilyName)
    val encoded = new Array[Array[Byte]](keys.length)
    var i = 0
    while (i < keys.length) {
      notNull(keys(i))
      encoded(i) = codec.encodeKey(keys(i))
      i += 1
    }
    transaction.multiGet(encoded).iterator.map(codec.decodeValue)
  }

  /** True if rows may have to be fetched from storage. */
  private[incremental] def isSparse: Boolean = transaction.isSparse

  /** True until the store is committed or aborted. */
  private[incremental] def isUpdating: Boolean = state eq Updating

  /**
   * Fetch the blocks that look-ups of these keys will read, many at a time, in each family that has such keys. Does
   * nothing once the store has ended.
   *
   * @param types types of the columns of the keys: a family with other columns is not asked
   */
  private[incremental] def expect(keys: Array[UnsafeRow], types: Seq[DataType]): Unit = if (isUpdating) {
    val encoded = familiesOf(types).flatMap { name =>
      val codec = codecs("expect", name)
      keys.iterator.map(codec.encodeKey)
    }
    transaction.expect(encoded)
  }

  /** Returns the names of the column families whose keys are whole rows with columns of these types. */
  private[incremental] def familiesOf(types: Seq[DataType]): Seq[String] =
    provider.families.withKeysOf(types).filter(families.get(_).isDefined)

  override def put(key: UnsafeRow, value: UnsafeRow, colFamilyName: String): Unit = {
    val codec = openToWrite("put", colFamilyName)
    notNull(key)
    require(value != null, "Cannot put a null value")
    transaction.put(codec.encodeKey(key), codec.encodeValue(value))
  }

  override def remove(key: UnsafeRow, colFamilyName: String): Unit = {
    val codec = openToWrite("remove", colFamilyName)
    notNull(key)
    transaction.remove(codec.encodeKey(key))
  }

  override def deleteRange(beginKey: UnsafeRow, endKey: UnsafeRow, colFamilyName: String): Unit = {
    val codec = openToWrite("deleteRange", colFamilyName)
    notNull(beginKey)
    notNull(endKey)
    verify(codec.deletesRanges,
      "deleteRange requires a RangeKeyScanStateEncoderSpec for ordered key encoding")
    transaction.removeRange(codec.encodeKey(beginKey), codec.encodeKey(endKey))
  }

  // --- lists of values

  override def valuesIterator(key: UnsafeRow, colFamilyName: String): Iterator[UnsafeRow] = {
    val codec = openForLists("valuesIterator", open("valuesIterator", colFamilyName))
    notNull(key)
    codec.decodeValues(transaction.get(codec.encodeKey(key)))
  }

  override def putList(key: UnsafeRow, values: Array[UnsafeRow], colFamilyName: String): Unit = {
    val codec = openForLists("putList", openToWrite("put", colFamilyName))
    notNull(key)
    noneNull(values, "put")
    if (values.nonEmpty) transaction.put(codec.encodeKey(key), codec.encodeValues(values))
  }

  override def merge(key: UnsafeRow, value: UnsafeRow, colFamilyName: String): Unit = {
    val codec = openForLists("merge", openToWrite("merge", colFamilyName))
    notNull(key)
    require(value != null, "Cannot merge a null value")
    transaction.append(codec.encodeKey(key), codec.encodeValue(value), RowCodec.Delimiter)
  }

  override def mergeList(key: UnsafeRow, values: Array[UnsafeRow], colFamilyName: String): Unit = {
    val codec = openForLists("mergeList", openToWrite("merge", colFamilyName))
    notNull(key)
    noneNull(values, "merge")
    if (values.nonEmpty) {
      transaction.append(codec.encodeKey(key), codec.encodeValues(values), RowCodec.Delimiter)
    }
  }

  // --- scans

  override def iterator(colFamilyName: String): StateStoreIterator[UnsafeRowPair] = {
    val codec = open("iterator", colFamilyName)
    rows(codec, family(codec))
  }

  override def iteratorWithMultiValues(colFamilyName: String): StateStoreIterator[UnsafeRowPair] = {
    val codec = openForLists("iteratorWithMultiValues", open("iteratorWithMultiValues", colFamilyName))
    values(codec, family(codec))
  }

  override def prefixScan(prefixKey: UnsafeRow, colFamilyName: String): StateStoreIterator[UnsafeRowPair] = {
    val codec = open("prefixScan", colFamilyName)
    require(codec.scansPrefixes, "Prefix scan requires setting prefix key!")
    rows(codec, prefix(codec, prefixKey))
  }

  override def prefixScanWithMultiValues(
      prefixKey: UnsafeRow, colFamilyName: String): StateStoreIterator[UnsafeRowPair] = {
    val codec = openForLists("prefixScanWithMultiValues", open("prefixScanWithMultiValues", colFamilyName))
    verify(codec.scansPrefixes, "prefixScanWithMultiValues requires encoder supporting prefix scan!")
    values(codec, prefix(codec, prefixKey))
  }

  override def rangeScan(
      startKey: Option[UnsafeRow],
      endKey: Option[UnsafeRow],
      colFamilyName: String): StateStoreIterator[UnsafeRowPair] = {
    val codec = open("rangeScan", colFamilyName)
    require(codec.scansRanges, "Range scan requires an encoder that supports range scanning!")
    rows(codec, range(codec, startKey, endKey))
  }

  override def rangeScanWithMultiValues(
      startKey: Option[UnsafeRow],
      endKey: Option[UnsafeRow],
      colFamilyName: String): StateStoreIterator[UnsafeRowPair] = {
    val codec = openForLists("rangeScanWithMultiValues", open("rangeScanWithMultiValues", colFamilyName))
    require(codec.scansRanges,
      "Range scan with multiple values requires an encoder that supports range scanning!")
    values(codec, range(codec, startKey, endKey))
  }

  /** Scans all rows of a family: in key order if the keys are encoded for order, else in the order that is quickest. */
  private def family(codec: RowCodec): Scan =
    scan(ColumnFamilies.from(codec.family.id), ColumnFamilies.until(codec.family.id), codec.scansRanges)

  private def scan(from: Array[Byte], until: Array[Byte], ordered: Boolean): Scan =
    transaction.scan(from, until, ordered, skip = RowCodec.PrefixBytes)

  /** Scans the rows of a prefix in key order, like RocksDB, for every encoder: users of map state see the order. */
  private def prefix(codec: RowCodec, row: UnsafeRow): Scan = {
    val from = codec.encodePrefix(row)
    scan(from, RowCodec.after(from), ordered = true)
  }

  private def range(codec: RowCodec, start: Option[UnsafeRow], end: Option[UnsafeRow]): Scan = {
    val from = start.fold(ColumnFamilies.from(codec.family.id))(codec.encodeKey)
    val until = end.fold(ColumnFamilies.until(codec.family.id))(codec.encodeKey)
    scan(from, until, ordered = true)
  }

  private def rows(codec: RowCodec, entries: Scan): StateStoreIterator[UnsafeRowPair] =
    new StateStoreIterator(new RowIterator(entries, codec, codecs, checkPair), () => entries.close())

  private def values(codec: RowCodec, entries: Scan): StateStoreIterator[UnsafeRowPair] =
    new StateStoreIterator(new ValuesIterator(entries, codec, codecs, checkPair), () => entries.close())

  // --- column families

  override def createColFamilyIfAbsent(
      colFamilyName: String,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useMultipleValuesPerKey: Boolean,
      isInternal: Boolean): Unit = {
    updating()
    provider.families.checkName("create_col_family", colFamilyName, isInternal)
    if (families.get(colFamilyName).isEmpty) families = families.added(colFamilyName, isInternal)
    provider.families.register(colFamilyName, FamilySchema(keyStateEncoderSpec, valueSchema, useMultipleValuesPerKey))
  }

  override def removeColFamilyIfExists(colFamilyName: String): Boolean = {
    updating()
    provider.families.checkName("remove_col_family", colFamilyName, isInternal = false)
    val removedFamily = families.get(colFamilyName)
    removedFamily.foreach { family =>
      transaction.removeRange(ColumnFamilies.from(family.id), ColumnFamilies.until(family.id))
      families = families.removed(colFamilyName)
      codecs.clear()
      provider.families.unregister(colFamilyName)
    }
    removedFamily.isDefined
  }

  override def allColumnFamilyNames: Set[String] = families.byName.keySet

  // --- ends

  override def commit(): Long = synchronized {
    if (state != Updating) throw outOfOrder(s"Cannot commit after $state")
    if (readOnly) throw outOfOrder("Cannot commit a store that was opened to read")
    try {
      val before = lookUpsBefore
      endEarlier()
      val changed = local.commit(transaction, start, opened.families, families)
      val commit = changed.copy(lookUps = changed.lookUps + before)
      committed = Some(commit)
      state = CommittedState
      afterCommit(commit)
      commit.version.number
    } catch {
      case e: Throwable => throw QueryExecutionErrors.failedToCommitStateFileError(toString, e)
    }
  }

  private def afterCommit(committed: CommittedVersion): Unit = {
    try {
      if (forceSnapshot) {
        local.merges.snapshotNow(committed.version)
      }
    } finally local.ended()
    provider.observed.committed(committed, opened)
    val report = Driver.reportCommit(provider.conf, committed.version.number, id, provider.hadoopConf)
    TaskContext.get match {
      case null => end(report)
      case task => task.addTaskCompletionListener[Unit](_ => end(report))
    }
  }

  /** Waits for the driver, which looks after the task if every store has committed. */
  private def end(report: CommitReport): Unit =
    try report.await()
    finally local.prepareNextBatch() // after the report, because its threads need the cores that this takes

  override def abort(): Unit = synchronized {
    state match {
      case Updating => end(Aborted)
      case CommittedState => throw outOfOrder("Cannot abort after COMMITTED")
      case _ => ()
    }
  }

  override def release(): Unit = synchronized {
    assert(readOnly || state != Updating, "Release can only be called on a read-only store")
    if (state == Updating) end(Released)
  }

  private def end(as: State): Unit = {
    state = as
    try endEarlier()
    finally
      try transaction.abort()
      finally local.ended()
  }

  /** Returns the look-ups of the transaction that only read. */
  private def lookUpsBefore: LookUps = earlier.fold(LookUps.none)(_.lookUps)

  private def endEarlier(): Unit = {
    earlier.foreach(_.abort())
    earlier = None
  }

  override def hasCommitted: Boolean = state == CommittedState

  override def metrics: StateStoreMetrics = state match {
    case CommittedState => figures
    case Updating =>
      val keys = transaction.keys
      provider.metrics.of(opened, None, keys, families.counted(opened.families, keys, transaction.growthByFamily),
        transaction.lookUps + lookUpsBefore, forced = false)
    case _ => ReportedMetrics.none
  }

  override def getStateStoreCheckpointInfo(): StateStoreCheckpointInfo =
    committed.map { made =>
      // Spark must not see the ids that the store makes for itself: it would hand them back.
      val id = if (provider.conf.enableStateStoreCheckpointIds) made.version.id else None
      StateStoreCheckpointInfo(this.id.partitionId, made.version.number, id, asked.id)
    }.getOrElse(throw outOfOrder("Cannot get checkpointInfo without committing the store"))

  /** Turns a store that was opened to read into one that makes the next version, over the same view. */
  private[incremental] def upgrade(forced: Boolean): IncrementalStateStore = synchronized {
    updating()
    require(readOnly, "Existing store must be readOnly, but got a read-write store")
    val again = local.beginAgain(start)
    try again.transaction.inherit(transaction) // the commit counts keys by the rows that were there before
    catch {
      case e: Throwable =>
        try again.transaction.abort()
        catch { case other: Throwable => e.addSuppressed(other) }
        throw e
    }
    earlier = Some(transaction)
    transaction = again.transaction
    start = again.start
    readOnly = false
    forceSnapshot = forced
    this
  }

  /** Ends the store with the task: aborts it if it was not committed. */
  private[incremental] def endWith(task: TaskContext): Unit = {
    task.addTaskCompletionListener[Unit] { _ =>
      if (state == Updating) {
        if (readOnly) release() else abort()
      }
    }
    task.addTaskFailureListener((_, _) => if (hasCommitted) local.failed(committed.get.version) else abort())
    // Listeners of a task that has failed already ran just now.
    Tasks.failure(task).foreach(throw _)
  }

  override def toString: String = s"IncrementalStateStore[id=$id, version=$version]"

  // --- checks

  /** Returns the codec of a family for this thread; throws if the store is not open. */
  private def open(operation: String, family: String): RowCodec = {
    if (state ne Updating) throw outOfOrder(s"Cannot update after $state")
    codecs(operation, family)
  }

  private def openToWrite(operation: String, family: String): RowCodec = {
    if (readOnly) throw outOfOrder(s"Cannot $operation in a store that was opened to read")
    open(operation, family)
  }

  private def openForLists(operation: String, codec: RowCodec): RowCodec = {
    verify(codec.multipleValues,
      s"$operation requires an encoder which supports multiple values for a single key")
    codec
  }

  private def updating(): Unit = if (state ne Updating) throw outOfOrder(s"Cannot update after $state")

  private def makeCodec(operation: String, name: String): RowCodec = {
    provider.families.checkUse(operation, name)
    families.get(name).flatMap(family => provider.families.codec(name, family))
      .getOrElse(throw StateStoreErrors.unsupportedOperationOnMissingColumnFamily(operation, name))
  }

  private def checkPair(pair: UnsafeRowPair): Unit = if (rowsToCheck) checkRow(pair.key, pair.value)

  // Like Spark's stores: the first row shows if the schema is the one of the checkpoint.
  private def checkRow(key: UnsafeRow, value: UnsafeRow): Unit = {
    rowsToCheck = false
    provider.checkRowFormat(key, value)
  }

  private def notNull(key: UnsafeRow): Unit =
    if (key == null) throw new IllegalStateException("Key cannot be null")

  private def noneNull(values: Array[UnsafeRow], operation: String): Unit = {
    require(values != null, s"Cannot $operation a null value")
    values.foreach(value => require(value != null, s"Cannot $operation a null value in the array"))
  }

  private def verify(condition: Boolean, message: String): Unit =
    if (!condition) throw new IllegalStateException(message)

  private def outOfOrder(message: String) = StateStoreErrors.stateStoreOperationOutOfOrder(message)
}

private object IncrementalStateStore {
  sealed abstract class State(name: String) {
    override def toString: String = name
  }
  case object Updating extends State("UPDATING")
  case object CommittedState extends State("COMMITTED")
  case object Aborted extends State("ABORTED")
  case object Released extends State("RELEASED")
}
