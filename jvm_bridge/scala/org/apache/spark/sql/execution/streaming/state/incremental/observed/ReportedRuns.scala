package org.apache.spark.sql.execution.streaming.state.incremental.observed

import scala.collection.mutable

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.settings.Declarations

/**
 * A query, as the listener of its events knows it.
 *
 * @param id         the query's id, which its checkpoint keeps
 * @param name       its name if it has one
 * @param options    the options of the state store that are in force, by name
 * @param operators  Spark's names of the stateful operators, by their ids; empty until a batch was planned
 * @param titles     the names of these for people, such as `aggregation on user`
 * @param partitions the numbers of partitions of the stateful operators, by their ids; empty until a batch was planned,
 *     and in records of Spark's status store
 */
private[observed] final case class QueryFacts(
    id: String,
    run: String,
    name: Option[String],
    startedMs: Long,
    options: Map[String, String] = Map.empty,
    operators: Map[Long, String] = Map.empty,
    titles: Map[Long, String] = Map.empty,
    partitions: Map[Long, Int] = Map.empty)

/**
 * The last restore of a store.
 *
 * @param atMs the time of the commit that it preceded
 */
private[observed] final case class LastRestore(atMs: Long, tookMs: Long, predictedMs: Long, version: Long)

/**
 * Sums over a store's reports in a run, from all executors that sent them.
 *
 * @param restored the last restore
 */
private[observed] final case class StoreSums(
    uploadedBytes: Long = 0, restores: Long = 0, restored: Option[LastRestore] = None, damagedFiles: Long = 0) {

  /** Returns the sums with a commit, before which that many more files were found damaged. */
  def plus(commit: StoreReport, damaged: Long): StoreSums = StoreSums(
    uploadedBytes + commit.deltaBytes, restores + commit.restored.size,
    commit.restored.map(of => LastRestore(commit.atMs, of.tookMs, of.predictedMs, commit.version - 1)).orElse(restored),
    damagedFiles + damaged)
}

/**
 * A store's newest report, the executor that sent it, and sums over all of them.
 *
 * @param mergedBytes the new bytes of its version since a merge of it was published; None before that
 */
private[observed] final case class StoreView(
    report: StoreReport,
    executor: String,
    host: String,
    sums: StoreSums = StoreSums(),
    mergedBytes: Option[Long] = None) {
  def key: StoreKey = report.key

  /** Bytes of the files that its version needs and no older version does. */
  def newBytes: Long = mergedBytes.getOrElse(report.deltaBytes)
}

/**
 * Merges that ended between two batches: all of them counted, and a few of them in words.
 *
 * @param counts   numbers of merges, by version, kind and success
 * @param reasons  reasons for the merges of a version
 * @param failures the newest failures
 * @param longest  the durations of the longest merge of a version that was published
 * @param gained   the new bytes that merges of a version gave it beyond those that it had
 */
private[observed] final case class MergesBetween(
    counts: Map[(Long, String, Boolean), Long] = Map.empty,
    reasons: Set[(Long, String)] = Set.empty,
    failures: Seq[MergeReport] = Nil,
    longest: Map[Long, Long] = Map.empty,
    gained: Map[Long, Long] = Map.empty) {

  /** Returns the merges and one more. */
  def plus(merge: MergeReport): MergesBetween = {
    val kind = (merge.version, merge.kind, merge.failure.isEmpty)
    MergesBetween(
      counts.updated(kind, counts.getOrElse(kind, 0L) + 1),
      if (reasons.size < MergesBetween.MaxReasons) reasons + (merge.version -> Messages.brief(merge.reason))
      else reasons,
      if (merge.failure.isEmpty) failures else (merge +: failures).take(MergesBetween.MaxFailures),
      if (merge.failure.isDefined || merge.kind == Declarations.ingestMerge) longest
      else longest.updated(merge.version, math.max(merge.tookMs, longest.getOrElse(merge.version, 0L))),
      if (merge.newBytes == merge.newBytesBefore) gained
      else gained.updated(
        merge.version, gained.getOrElse(merge.version, 0L) + merge.newBytes - merge.newBytesBefore))
  }

  /** Returns these merges with those that ended later. */
  def ++(later: MergesBetween): MergesBetween = {
    val newReasons = (later.reasons -- reasons).toSeq.sorted.take(math.max(0, MergesBetween.MaxReasons - reasons.size))
    MergesBetween(
      (counts.toSeq ++ later.counts).groupMapReduce(_._1)(_._2)(_ + _), reasons ++ newReasons,
      (later.failures ++ failures).take(MergesBetween.MaxFailures),
      (longest.toSeq ++ later.longest).groupMapReduce(_._1)(_._2)(math.max),
      (gained.toSeq ++ later.gained).groupMapReduce(_._1)(_._2)(_ + _))
  }
}

private[observed] object MergesBetween {
  private val MaxReasons = 10
  private val MaxFailures = 20
}

/**
 * A batch that Spark has committed.
 *
 * @param atMs   the time at which its commit became known, in milliseconds since 1970
 * @param tookMs how long all of it took, by Spark's progress
 */
private[observed] final case class CommittedBatch(number: Long, atMs: Long, tookMs: Long)

/**
 * A run of a query with its stores. Immutable.
 *
 * @param batch   the newest batch that Spark has committed and the stores have reported; None before the first ends
 * @param stores  the stores that were reported, ordered by operator, partition and name
 * @param merges  merges that ended, newest first
 * @param between merges that ended since the newest batch was reported to Spark's listeners
 * @param metricValues counters and histograms since the run began
 * @param error   the reason of the end; None if the run goes on or was stopped
 */
private[observed] final case class RunView(
    facts: QueryFacts,
    batch: Option[CommittedBatch],
    stores: Seq[StoreView],
    merges: Seq[MergeReport],
    metricValues: MetricValues,
    between: MergesBetween,
    ended: Boolean,
    error: Option[String]) {
  def version: Option[Long] = batch.map(_.number + 1)

  /** The query's checkpoint directory, as a URI. */
  def checkpoint: String = stores.headOption.fold("")(_.report.root.stripSuffix("/").stripSuffix("/state"))
}

/**
 * The driver's knowledge of the stores of its queries, of bounded size: it forgets the runs that have been silent for
 * longest, and takes no stores beyond a limit. Safe for any thread.
 */
private[observed] final class ReportedRuns extends Logging {
  private final class Run(var facts: QueryFacts) {
    val stores = mutable.Map.empty[StoreKey, StoreView]
    val before = mutable.Map.empty[StoreKey, StoreView]
    val restarts = mutable.Map.empty[String, Long]
    val damaged = mutable.Map.empty[(StoreKey, String), Long]
    val metrics = new RunMetrics
    var merges: Vector[MergeReport] = Vector.empty
    var between = MergesBetween()
    var ofBatch = (-1L, MergesBetween())
    var batch: Option[CommittedBatch] = None
    var committed: Option[CommittedBatch] = None
    var ended = false
    var error: Option[String] = None

    private var ordered = IndexedSeq.empty[StoreKey]

    /** Returns the stores by operator, partition and name. */
    def inOrder: Seq[StoreView] = {
      if (ordered.size != stores.size) {
        ordered = stores.keys.toIndexedSeq.sortBy(key => (key.operator, key.partition, key.store))
      }
      ordered.map(stores)
    }

    def view: RunView = RunView(facts, batch, inOrder, merges, metrics.now, between, ended, error)
  }

  private val runs = mutable.LinkedHashMap.empty[String, Run]
  private var storeCount = 0
  private var saidFull = false

  /** Notes that a query has started, or more facts about it. */
  def learned(facts: QueryFacts): Unit = synchronized { run(facts.run).facts = facts }

  /** Returns the facts about a run's query, if the run is known. */
  def facts(run: String): Option[QueryFacts] = synchronized(runs.get(run).map(_.facts))

  /** Takes an executor's reports of commits. */
  def committed(executor: String, host: String, commits: Seq[StoreReport]): Unit = synchronized {
    commits.foreach(commit => committed(run(commit.key.run), executor, host, commit))
  }

  /** Takes the report of a merge. */
  def merged(merge: MergeReport): Unit = synchronized {
    val entry = run(merge.key.run)
    entry.merges = (merge +: entry.merges).take(ReportedRuns.MaxMerges)
    entry.metrics.merged(merge)
    entry.between = entry.between.plus(merge)
    if (merge.failure.isEmpty) {
      entry.stores.updateWith(merge.key)(_.map(store => withNewBytes(published(store, merge), merge)))
      entry.before.updateWith(merge.key)(_.map(withNewBytes(_, merge)))
    }
  }

  /** Notes that Spark has committed a batch. Views have it when the stores have reported it, or the run ends. */
  def progressed(runId: String, batch: CommittedBatch): Unit = synchronized {
    run(runId).committed = Some(batch)
  }

  /** Lets views have a batch that Spark has committed, unless they have a newer one. */
  def reported(runId: String, batch: CommittedBatch): Unit = synchronized {
    runs.get(runId).filter(_.batch.forall(_.number <= batch.number)).foreach(_.batch = Some(batch))
  }

  /** Notes that a run has ended, with its error if there is one. */
  def terminated(runId: String, error: Option[String]): Unit = synchronized {
    runs.get(runId).foreach { entry =>
      entry.committed.foreach(reported(runId, _))
      entry.ended = true
      entry.error = error
    }
  }

  /** Returns true if each partition of the run's operators has a store, and all stores have reported that version. */
  def isComplete(runId: String, version: Long): Boolean = synchronized {
    runs.get(runId).exists { entry =>
      def heardOf = entry.stores.keySet.map(key => (key.operator, key.partition))
      entry.stores.nonEmpty && entry.stores.values.forall(_.report.version >= version) &&
      heardOf.size >= entry.facts.partitions.values.sum
    }
  }

  /** Returns a run as it is now. */
  def view(runId: String): Option[RunView] = synchronized(runs.get(runId).map(_.view))

  /** Returns a run as it was at a version, unless the next batch has ended too. */
  def viewAt(runId: String, version: Long): Option[RunView] = synchronized {
    runs.get(runId).map { entry =>
      val now = entry.view
      now.copy(stores = now.stores.map { store =>
        if (store.report.version <= version) store
        else entry.before.get(store.key).filter(_.report.version <= version).getOrElse(store)
      })
    }
  }

  /**
   * Returns the merges of a run for the record of a batch: those that ended since the last call, after those that an
   * earlier record of the batch has, which this one replaces.
   */
  def takeMerges(runId: String, batch: Long): MergesBetween = synchronized {
    runs.get(runId).fold(MergesBetween()) { entry =>
      val fresh = entry.between
      val (newest, earlier) = entry.ofBatch
      val all = if (newest == batch) earlier ++ fresh else fresh
      if (newest <= batch) entry.ofBatch = batch -> all
      entry.between = MergesBetween()
      all
    }
  }

  /** Returns all runs, the one with the newest report last. */
  def views: Seq[RunView] = synchronized(runs.values.map(_.view).toSeq)

  // Until its next commit, a store's newest snapshot is younger than its newest report.
  private def published(store: StoreView, merge: MergeReport): StoreView = {
    val since = Some(store.report.atMs - merge.atMs)
    val report = merge.kind match {
      case Declarations.fullMerge =>
        store.report.copy(sinceSnapshotMs = since, sinceFullMs = since, fullVersion = Some(merge.version))
      case Declarations.ingestMerge => store.report
      case _ => store.report.copy(sinceSnapshotMs = since)
    }
    store.copy(
      report = report, sums = store.sums.copy(uploadedBytes = store.sums.uploadedBytes + merge.uploadedBytes))
  }

  private def withNewBytes(store: StoreView, merge: MergeReport): StoreView =
    if (merge.kind == Declarations.ingestMerge || merge.version != store.report.version) store
    else store.copy(mergedBytes = Some(merge.newBytes))

  private def committed(entry: Run, executor: String, host: String, report: StoreReport): Unit = {
    val figures = entry.stores.get(report.key)
    if (figures.isEmpty && storeCount >= ReportedRuns.MaxStores) {
      if (!saidFull) {
        saidFull = true
        logInfo(
          s"More than ${ReportedRuns.MaxStores} state stores report to this driver: the tab \"Checkpoints\" leaves " +
            "the others out")
      }
    } else if (figures.forall(_.report.version <= report.version)) {
      if (figures.isEmpty) storeCount += 1
      figures.filter(_.report.version < report.version).foreach(entry.before.update(report.key, _))
      // The counters of another provider, of this executor or another, begin at 0. One whose store has moved away stays
      // open for a while, and the store may come back.
      val counted = entry.damaged.getOrElse((report.key, executor), 0L)
      if (counted != report.damagedFiles) entry.damaged.update((report.key, executor), report.damagedFiles)
      val damaged = if (counted <= report.damagedFiles) report.damagedFiles - counted else report.damagedFiles
      val sums = figures.fold(StoreSums())(_.sums).plus(report, damaged)
      entry.stores.update(report.key, StoreView(report, executor, host, sums))
      val restarts = entry.restarts.getOrElse(executor, report.agentRestartsBefore)
      entry.restarts.update(executor, math.max(restarts, report.agentRestarts))
      val hasMoved = figures.exists(view => view.executor != executor && view.report.version < report.version)
      entry.metrics.committed(report, damaged, math.max(0, report.agentRestarts - restarts), hasMoved)
    }
  }

  private def run(id: String): Run = runs.lastOption.filter(_._1 == id).fold(newest(id))(_._2)

  private def newest(id: String): Run = {
    val reportedRun = runs.remove(id).getOrElse(new Run(QueryFacts(id, id, None, System.currentTimeMillis)))
    runs.put(id, reportedRun) // moves the run to the end: it was heard of last
    while (runs.size > ReportedRuns.MaxRuns) {
      val oldest = runs.find(_._2.ended).getOrElse(runs.head)._1
      runs.remove(oldest).foreach(gone => storeCount -= gone.stores.size)
    }
    reportedRun
  }
}

private[observed] object ReportedRuns {
  /** The largest number of runs that are kept. */
  val MaxRuns = 50

  /** The largest number of stores that are kept, over all runs. */
  val MaxStores = 20000

  /** The largest number of merges of a run that are kept. */
  val MaxMerges = 200
}
