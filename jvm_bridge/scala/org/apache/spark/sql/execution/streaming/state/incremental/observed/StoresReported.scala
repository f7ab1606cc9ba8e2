package org.apache.spark.sql.execution.streaming.state.incremental.observed

import scala.annotation.meta.getter
import scala.jdk.CollectionConverters._

import org.apache.spark.SparkConf
import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.{SparkListener, SparkListenerEvent}
import org.apache.spark.status.{AppHistoryServerPlugin, ElementTrackingStore}
import org.apache.spark.ui.SparkUI
import org.apache.spark.util.kvstore.{KVIndex, KVStore}

/**
 * Reports the stores of a query after a batch to Spark's listeners, and by them to the event log.
 *
 * @param record a [[BatchRecord]] as a text, so that a History Server of another release can read it
 */
final case class StoresReported(record: String) extends SparkListenerEvent

/**
 * A record as Spark's status store keeps it.
 *
 * @param id    the run and the batch
 * @param query the query's id
 * @param order the time of the batch: the store forgets the oldest first
 */
private[observed] final class StoredRecord(
    @(KVIndex @getter) val id: String,
    @(KVIndex @getter)("query") val query: String,
    @(KVIndex @getter)("order") val order: Long,
    val record: String)

/**
 * Keeps the records of batches for the pages: in the driver, and in the History Server when it reads the event log of
 * an application.
 */
private[observed] final class RecordsListener(store: ElementTrackingStore) extends SparkListener with Logging {
  store.addTrigger(classOf[StoredRecord], RecordsListener.MaxRecords) { count =>
    val excess = math.max(0, count - RecordsListener.MaxRecords)
    val iterator = store.view(classOf[StoredRecord]).index("order").max(excess).closeableIterator()
    val old =
      try iterator.asScala.map(_.id).toList
      finally iterator.close()
    old.foreach(id => store.delete(classOf[StoredRecord], id))
  }

  override def onOtherEvent(event: SparkListenerEvent): Unit = event match {
    case StoresReported(text) =>
      try keep(BatchRecord.label(text), text)
      catch { case Survivable(e) => logInfo("A report of state stores cannot be read; it is left out", e) }
    case _ => ()
  }

  private def keep(label: RecordLabel, text: String): Unit = {
    val id = Records.id(label.run, label.batch)
    store.write(new StoredRecord(id, label.query, label.atMs, text), checkTriggers = true)
    // Older batches lose their stores and keep their totals.
    val outdated = Records.id(label.run, label.batch - RecordsListener.MaxBatchesWithStores)
    try {
      val old = store.read(classOf[StoredRecord], outdated)
      store.write(new StoredRecord(old.id, old.query, old.order, BatchRecord.briefText(old.record)))
    } catch { case _: NoSuchElementException => () }
  }
}

private[observed] object RecordsListener {
  /** The largest number of records that are kept, over all queries. */
  private val MaxRecords = 1000L

  /** The number of batches of a run whose stores are kept. */
  private val MaxBatchesWithStores = 20
}

/** The records in a status store. One that lacks a field, as of another release, is left out. */
private[observed] final class Records(store: KVStore) extends Logging {
  /** Returns the newest record of each query, the query that was heard of last at the end. */
  def newest: Seq[BatchRecord] = {
    val all = read(store.view(classOf[StoredRecord]).index("order"))
    val last = all.map(stored => stored.query -> stored).toMap
    last.values.toSeq.sortBy(_.order).flatMap(readable)
  }

  /** Returns the records of a query, newest first; only the newest of a version that a restart made again. */
  def of(query: String): Seq[BatchRecord] =
    read(store.view(classOf[StoredRecord]).index("query").first(query).last(query)).sortBy(-_.order)
      .flatMap(readable).distinctBy(_.batch)

  /** Returns true if there is any record. */
  def nonEmpty: Boolean = store.count(classOf[StoredRecord]) > 0

  private def readable(stored: StoredRecord): Option[BatchRecord] =
    try Some(BatchRecord.read(stored.record))
    catch {
      case Survivable(e) =>
        logDebug(s"The report ${stored.id} of state stores cannot be read; it is left out", e)
        None
    }

  private def read(view: org.apache.spark.util.kvstore.KVStoreView[StoredRecord]): Seq[StoredRecord] = {
    val iterator = view.closeableIterator()
    try iterator.asScala.toList
    finally iterator.close()
  }
}

private[observed] object Records {
  def id(run: String, batch: Long): String = s"$run-$batch"
}

/** Adds the tab to the History Server for applications that used the store; Java's ServiceLoader finds it. */
final class CheckpointsHistoryPlugin extends AppHistoryServerPlugin {
  override def createListeners(conf: SparkConf, store: ElementTrackingStore): Seq[SparkListener] =
    Seq(new RecordsListener(store))

  override def setupUI(ui: SparkUI): Unit =
    if (new Records(ui.store.store).nonEmpty) CheckpointsTab.attach(ui, None)

  override def displayOrder: Int = 30
}
