package org.apache.spark.sql.execution.streaming.state.incremental.observed

import scala.collection.mutable

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.settings.Declarations

/**
 * A query as its listener knows it.
 *
 * @param id        the query's id, which its checkpoint keeps
 * @param name      its name if it has one
 * @param options   the options of the state store that are in force, by name
 * @param operators what Spark calls the stateful operators, by their ids; empty until a batch was planned
 */
private[observed] final case class QueryFacts(
    id: String,
    run: String,
    name: Option[String],
    startedMs: Long,
    options: Map[String, String] = Map.empty,
    operators: Map[Long, String] = Map.empty)

/**
 * Sums over a store's reports in a run, whichever executors sent them.
 *
 * @param restoredMs how long the last restore took
 */
private[observed] final case class StoreSums(
    uploadedBytes: Long = 0, restores: Long = 0, restoredMs: Option[Long] = None, damagedFiles: Long = 0) {

  /** With a commit, after which that many more files were found damaged. */
  def plus(commit: StoreReport, damaged: Long): StoreSums = StoreSums(
    uploadedBytes + commit.deltaBytes, restores + commit.restored.size,
    commit.restored.map(_.tookMs).orElse(restoredMs), damagedFiles + damaged)
}

/** A store's newest report, the executor that sent it, and sums over all of them. */
private[observed] final case class StoreView(
    report: StoreReport, executor: String, host: String, sums: StoreSums = StoreSums()) {
  def key: StoreKey = report.key
}

/**
 * Merges that ended between two batches: all of them counted, and a few of them in words.
 *
 * @param counts   how many, by version, kind and whether they succeeded
 * @param reasons  why merges of a version were made
 * @param failures the newest that failed
 */
private[observed] final case class MergesBetween(
    counts: Map[(Long, String, Boolean), Long] = Map.empty,
    reasons: Set[(Long, String)] = Set.empty,
    failures: Seq[MergeReport] = Nil) {

  /** With one more merge. */
  def plus(merge: MergeReport): MergesBetween = {
    val of = (merge.version, merge.kind, merge.failure.isEmpty)
    MergesBetween(
      counts.updated(of, counts.getOrElse(of, 0L) + 1),
      if (reasons.size < MergesBetween.MostReasons) reasons + (merge.version -> Messages.brief(merge.reason)) else reasons,
      if (merge.failure.isEmpty) failures else (merge +: failures).take(MergesBetween.MostFailures))
  }
}

private[observed] object MergesBetween {
  private val MostReasons = 10
  private val MostFailures = 20
}

/**
 * A run of a query with its stores. Immutable.
 *
 * @param batch   the newest batch that Spark has committed, and the version of the stores that it made; None before
 *                the first ends
 * @param stores  the stores that were reported, ordered by operator, partition and name
 * @param merges  merges that ended, newest first
 * @param between merges that ended since the newest batch was reported to Spark's listeners
 * @param tallies counters and histograms since the run began
 * @param error   why the run ended; None if it runs or was stopped
 */
private[observed] final case class RunView(
    facts: QueryFacts,
    batch: Option[Long],
    batchMs: Long,
    stores: Seq[StoreView],
    merges: Seq[MergeReport],
    tallies: Tallies,
    between: MergesBetween,
    ended: Boolean,
    error: Option[String]) {
  def version: Option[Long] = batch.map(_ + 1)

  /** The query's checkpoint directory, as a URI. */
  def checkpoint: String = stores.headOption.fold("")(_.report.root.stripSuffix("/").stripSuffix("/state"))
}

/**
 * The driver's knowledge of the stores of its queries, of bounded size: of the runs that have not been heard of for
 * longest, and of stores beyond the limit, nothing is kept. Safe for any thread.
 */
private[observed] final class Board extends Logging {
  private final class Run(var facts: QueryFacts) {
    val stores = mutable.Map.empty[StoreKey, StoreView]
    val before = mutable.Map.empty[StoreKey, StoreView]
    val restarts = mutable.Map.empty[String, Long]
    val tallies = new RunTallies
    var merges: Vector[MergeReport] = Vector.empty
    var between = MergesBetween()
    var batch: Option[Long] = None
    var batchMs = 0L
    var ended = false
    var error: Option[String] = None

    private var ordered = IndexedSeq.empty[StoreKey]

    /** The stores by operator, partition and name. */
    def inOrder: Seq[StoreView] = {
      if (ordered.size != stores.size) {
        ordered = stores.keys.toIndexedSeq.sortBy(key => (key.operator, key.partition, key.store))
      }
      ordered.map(stores)
    }

    def view: RunView =
      RunView(facts, batch, batchMs, inOrder, merges, tallies.now, between, ended, error)
  }

  private val runs = mutable.LinkedHashMap.empty[String, Run]
  private var storeCount = 0
  private var saidFull = false

  /** A query has started or is known better. */
  def learned(facts: QueryFacts): Unit = synchronized { run(facts.run).facts = facts }

  /** What is known of a run's query. */
  def facts(run: String): Option[QueryFacts] = synchronized(runs.get(run).map(_.facts))

  /** Reports of an executor's commits have come. */
  def committed(executor: String, host: String, commits: Seq[StoreReport]): Unit = synchronized {
    commits.foreach(commit => committed(run(commit.key.run), executor, host, commit))
  }

  /** The report of a merge has come. */
  def merged(merge: MergeReport): Unit = synchronized {
    val of = run(merge.key.run)
    of.merges = (merge +: of.merges).take(Board.MostMerges)
    of.tallies.merged(merge)
    of.between = of.between.plus(merge)
    if (merge.failure.isEmpty) of.stores.updateWith(merge.key)(_.map(published(_, merge)))
  }

  /** Spark has committed a batch. */
  def progressed(runId: String, batch: Long, atMs: Long): Unit = synchronized {
    val of = run(runId)
    of.batch = Some(batch)
    of.batchMs = atMs
  }

  /** A run has ended, by an error or not. */
  def terminated(runId: String, error: Option[String]): Unit = synchronized {
    runs.get(runId).foreach { of =>
      of.ended = true
      of.error = error
    }
  }

  /** Whether all stores that were reported of the run have reported that version. */
  def isComplete(runId: String, version: Long): Boolean = synchronized {
    runs.get(runId).exists(of => of.stores.nonEmpty && of.stores.values.forall(_.report.version >= version))
  }

  /** A run as it is now. */
  def view(runId: String): Option[RunView] = synchronized(runs.get(runId).map(_.view))

  /** A run as it was at a version, if the next batch has not ended too. */
  def viewAt(runId: String, version: Long): Option[RunView] = synchronized {
    runs.get(runId).map { of =>
      val now = of.view
      now.copy(stores = now.stores.map { store =>
        if (store.report.version <= version) store
        else of.before.get(store.key).filter(_.report.version <= version).getOrElse(store)
      })
    }
  }

  /** The merges of a run that ended since the last call. */
  def takeMerges(runId: String): MergesBetween = synchronized {
    runs.get(runId).fold(MergesBetween()) { of =>
      val taken = of.between
      of.between = MergesBetween()
      taken
    }
  }

  /** All runs, those that were heard of last at the end. */
  def views: Seq[RunView] = synchronized(runs.values.map(_.view).toSeq)

  // Until its next commit, a store's newest snapshot is younger than its newest report.
  private def published(store: StoreView, merge: MergeReport): StoreView = {
    val since = Some(store.report.atMs - merge.atMs)
    val report = merge.kind match {
      case Declarations.fullMerge => store.report.copy(sinceSnapshotMs = since, sinceFullMs = since)
      case Declarations.ingestMerge => store.report
      case _ => store.report.copy(sinceSnapshotMs = since)
    }
    store.copy(
      report = report, sums = store.sums.copy(uploadedBytes = store.sums.uploadedBytes + merge.uploadedBytes))
  }

  private def committed(of: Run, executor: String, host: String, report: StoreReport): Unit = {
    val known = of.stores.get(report.key)
    if (known.isEmpty && storeCount >= Board.MostStores) {
      if (!saidFull) {
        saidFull = true
        logInfo(s"More than ${Board.MostStores} state stores report to this driver: the tab \"Checkpoints\" leaves " +
          "the others out")
      }
    } else if (known.forall(_.report.version <= report.version)) {
      if (known.isEmpty) storeCount += 1
      known.filter(_.report.version < report.version).foreach(of.before.update(report.key, _))
      // Another provider, of this executor or another, counts from the beginning.
      val counted = known.filter(one => one.executor == executor && one.report.damagedFiles <= report.damagedFiles)
      val damaged = report.damagedFiles - counted.fold(0L)(_.report.damagedFiles)
      val sums = known.fold(StoreSums())(_.sums).plus(report, damaged)
      of.stores.update(report.key, StoreView(report, executor, host, sums))
      val restarts = of.restarts.getOrElse(executor, report.agentRestartsBefore)
      of.restarts.update(executor, math.max(restarts, report.agentRestarts))
      of.tallies.committed(report, damaged, math.max(0, report.agentRestarts - restarts))
    }
  }

  private def run(id: String): Run = runs.lastOption.filter(_._1 == id).fold(heardOf(id))(_._2)

  private def heardOf(id: String): Run = {
    val known = runs.remove(id).getOrElse(new Run(QueryFacts(id, id, None, System.currentTimeMillis)))
    runs.put(id, known) // at the end: heard of last
    while (runs.size > Board.MostRuns) {
      val oldest = runs.find(_._2.ended).getOrElse(runs.head)._1
      runs.remove(oldest).foreach(gone => storeCount -= gone.stores.size)
    }
    known
  }
}

private[observed] object Board {
  /** The most runs that are kept. */
  val MostRuns = 50

  /** The most stores that are kept, over all runs. */
  val MostStores = 20000

  /** The most merges of a run that are kept. */
  val MostMerges = 200
}
