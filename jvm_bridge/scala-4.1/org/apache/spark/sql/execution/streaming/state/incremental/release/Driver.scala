package org.apache.spark.sql.execution.streaming.state.incremental.release

import java.util.UUID

import scala.concurrent.Future
import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration

import org.apache.spark.rpc.RpcEndpointRef
import org.apache.spark.sql.execution.streaming.state.{
  ReportStateStoreCommit, RocksDBEventForwarder, StateStore, StateStoreConf, StateStoreCustomMetric, StateStoreId,
  StateStoreInstanceMetric, StateStoreMetrics, StateStoreProvider, StateStoreProviderId,
  StateStoreSnapshotLastUploadInstanceMetric
}
import org.apache.spark.util.RpcUtils
import org.apache.spark.SparkEnv

/** The calls of a store on the driver's query. */
object Driver {
  /** Returns the id of the query's run. */
  def runId(hadoopConf: Configuration): String = StateStoreProvider.getRunId(hadoopConf)

  private var coordinator: Option[(SparkEnv, RpcEndpointRef)] = None

  /**
   * Begins to report a committed version, if the driver checks that every store commits. Spark's own call waits for the
   * answer, and on the driver for a second one before.
   */
  def reportCommit(conf: StateStoreConf, version: Long, id: StateStoreId, hadoopConf: Configuration): CommitReport =
    if (!conf.commitValidationEnabled) () => ()
    else {
      val report = ReportStateStoreCommit(
        StateStoreProviderId(id, UUID.fromString(runId(hadoopConf))), version, id.storeName)
      val answer =
        try coordinatorOf(SparkEnv.get).ask[Unit](report)
        catch { case NonFatal(e) => Future.failed(e) }
      () =>
        try RpcUtils.askRpcTimeout(SparkEnv.get.conf).awaitResult(answer)
        catch {
          case NonFatal(_) => // the endpoint may have been replaced
            synchronized { coordinator = None }
            StateStore.reportCommitToCoordinator(version, id, hadoopConf)
        }
    }

  private def coordinatorOf(env: SparkEnv): RpcEndpointRef = synchronized {
    coordinator.collect { case (of, known) if of eq env => known }.getOrElse {
      val reference = RpcUtils.makeDriverRef("StateStoreCoordinator", env.conf, env.rpcEnv)
      coordinator = Some(env -> reference)
      reference
    }
  }

  /** Reports an uploaded snapshot, if the driver watches for stores that lag behind. */
  def reportSnapshot(conf: StateStoreConf, version: Long, id: StateStoreId, hadoopConf: Configuration): Unit =
    if (conf.reportSnapshotUploadLag) {
      RocksDBEventForwarder(runId(hadoopConf), id).reportSnapshotUploaded(version)
    }
}

/** The figures of a store as Spark takes them from 4.1 on, with metrics of single stores. */
object ReportedMetrics {
  val none: StateStoreMetrics = StateStoreMetrics(0, 0, Map.empty, Map.empty)

  val lastSnapshot: StateStoreInstanceMetric = StateStoreSnapshotLastUploadInstanceMetric()

  def of(
      id: StateStoreId,
      keys: Long,
      memoryBytes: Long,
      custom: Map[StateStoreCustomMetric, Long],
      lastSnapshotVersion: Long): StateStoreMetrics =
    StateStoreMetrics(keys, memoryBytes, custom,
      Map(lastSnapshot.withNewId(id.partitionId, id.storeName) -> lastSnapshotVersion))
}

/** A report to the driver that has begun. */
trait CommitReport {
  /** Waits until the driver has the report. A report that fails is logged. */
  def await(): Unit
}
