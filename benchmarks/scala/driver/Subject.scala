package statestore.benchmark

import java.nio.file.Path
import java.util.concurrent.{Executors, ExecutorService}

import scala.collection.mutable

import com.fasterxml.jackson.databind.JsonNode
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{Path => StoragePath}

import org.apache.spark.sql.execution.streaming.state.{StateStore, StateStoreConf, StateStoreId}
import org.apache.spark.sql.internal.SQLConf

/**
 * The times of a batch: sums over the stores, and `wallNanos` for open, get and put of every key, and commit of all of
 * them. They exclude the collection of metrics, which a task does afterwards.
 */
final case class BatchTimes(
    wallNanos: Long, openNanos: Long, rowsNanos: Long, commitNanos: Long, metricsNanos: Long, right: Boolean)

/**
 * A measured provider: its configuration, its stores, its directory of checkpoint storage and its local directory.
 *
 * @param node `name`, `provider` (class), `conf` (SQL options; `{dir}` stands for the local directory)
 * @param local directory of this subject alone; its `files` are deleted to simulate a new machine
 * @param root URI of this subject's own checkpoint storage
 * @param hadoopConf configuration of that storage
 */
final class Subject(node: JsonNode, local: Path, root: String, hadoopConf: Configuration, shape: Shape) {
  val name: String = node.get("name").asText
  val storage = new StorageView(new StoragePath(root.replaceFirst("^delayed:", "file:")), hadoopConf)
  val maintenance = new Maintenance(shape.threads)
  var failure: Option[Throwable] = None

  private val storeConf: StateStoreConf = {
    val conf = new SQLConf
    conf.setConfString("spark.sql.streaming.stateStore.providerClass", node.get("provider").asText)
    node.get("conf").properties.forEach { option =>
      conf.setConfString(option.getKey,
        option.getValue.asText.replace("{dir}", local.resolve("files").toString))
    }
    StateStoreConf(conf)
  }
  val stores: IndexedSeq[StoreHandle] = (0 until shape.stores).map { partition =>
    new StoreHandle(StateStoreId(root, 0L, partition),
      shape.keys, shape.values, storeConf, hadoopConf)
  }
  private val pool: Option[ExecutorService] =
    if (shape.stores > 1) Some(Executors.newFixedThreadPool(shape.threads)) else None
  private val custom = mutable.LinkedHashMap.empty[String, Long].withDefaultValue(0L)
  private var memoryUsed = 0L
  private var keyCount = 0L

  def start(): Unit = stores.foreach(_.start())

  /** True if its stores take keys before they are looked up. */
  def looksAhead: Boolean = LookAhead.isOf(stores.head.provider)

  /**
   * Runs a batch.
   *
   * @param ahead true to announce the keys before they are looked up, as the operators of the session extension do
   */
  def run(plans: Array[StorePlan], ahead: Boolean = false): BatchTimes = {
    val rows = plans.map(new BatchRows(_, shape.keys, shape.values))
    val started = System.nanoTime()
    val parts = each(store => runBatch(stores(store), plans(store), rows(store), ahead))
    val ended = System.nanoTime()
    collect(parts.map(_._1))
    val times = parts.map(_._2)
    BatchTimes(ended - started, times.map(_.openNanos).sum,
      times.map(_.rowsNanos).sum, times.map(_.commitNanos).sum,
      System.nanoTime() - ended, times.forall(_.right))
  }

  /** Returns the custom metrics, summed over batches and stores since the last call. */
  def takeCustomMetrics(): Map[String, Long] = {
    val taken = custom.toMap
    custom.clear()
    taken
  }

  def reportedMemoryBytes: Long = memoryUsed
  def reportedKeys: Long = keyCount

  def maintain(): Unit = maintenance.start(stores.map(_.provider))

  /** Closes every provider instance, and with `wipe` deletes the local files: the next `start` is on a new machine. */
  def stop(wipe: Boolean): Unit = {
    maintenance.drain()
    stores.foreach(_.stop())
    if (wipe) Directories.delete(local.resolve("files"))
  }

  def close(): Unit = {
    try stop(wipe = true)
    finally {
      maintenance.close()
      pool.foreach(_.shutdown())
      val path = new StoragePath(root)
      path.getFileSystem(hadoopConf).delete(path, true)
      Directories.delete(local)
    }
  }

  private def each[T](work: Int => T): Seq[T] = pool match {
    case None => Seq(work(0))
    case Some(executor) => stores.indices.map(store => executor.submit(() => work(store))).map(_.get())
  }

  private def runBatch(
      handle: StoreHandle, plan: StorePlan, rows: BatchRows, ahead: Boolean): (StateStore, BatchTimes) = {
    val started = System.nanoTime()
    val store = handle.open()
    try {
      touchAndCommit(handle, store, plan, rows, started, ahead)
    } catch {
      case e: Throwable => // an open store would keep the provider from being closed
        try store.abort()
        catch { case second: Throwable => e.addSuppressed(second) }
        throw e
    }
  }

  private def touchAndCommit(
      handle: StoreHandle,
      store: StateStore,
      plan: StorePlan,
      rows: BatchRows,
      started: Long,
      ahead: Boolean): (StateStore, BatchTimes) = {
    val opened = System.nanoTime()
    var sum = 0L
    var place = 0
    val count = plan.touched.length
    while (place < count) {
      if (ahead && place % LookAhead.Rows == 0) LookAhead.announce(store, rows, place, count, shape.keys)
      val key = rows.key(place)
      val old = store.get(key)
      if (old != null) sum += old.getLong(0) * (2L * place + 1)
      if (!plan.readOnly) store.put(key, rows.value(place))
      place += 1
    }
    place = 0
    while (place < plan.removed.length) {
      store.remove(rows.removedKey(place))
      place += 1
    }
    val touched = System.nanoTime()
    handle.commit(store)
    val ended = System.nanoTime()
    (store,
      BatchTimes(ended - started, opened - started, touched - opened,
        ended - touched, 0L, sum == plan.expected))
  }

  private def collect(committed: Seq[StateStore]): Unit = {
    val metrics = committed.map(_.metrics)
    memoryUsed = metrics.map(_.memoryUsedBytes).sum
    keyCount = metrics.map(_.numKeys).sum
    for (store <- metrics; (metric, value) <- store.customMetrics) custom(metric.name) += value
  }
}
