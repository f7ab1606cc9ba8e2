package org.apache.spark.sql.execution.streaming.state.incremental.placement

import java.util.{LinkedHashMap, UUID}
import java.util.Map.Entry

import org.apache.spark.SparkContext
import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{SparkPlan, UnionExec}
import org.apache.spark.sql.execution.exchange.Exchange
import org.apache.spark.sql.execution.streaming.state.{StateStoreId, StateStoreProviderId}
import org.apache.spark.sql.execution.streaming.state.incremental.IncrementalStateStoreProvider
import org.apache.spark.sql.execution.streaming.state.incremental.agent.Supervised
import org.apache.spark.sql.execution.streaming.state.incremental.release.{Jar, StoreNames}
import org.apache.spark.sql.execution.streaming.state.incremental.release.SparkNames.StateStoreWriter
import org.apache.spark.sql.execution.streaming.state.incremental.settings.OptionTexts

/**
 * Rule that leaves plans as they are, and moves stores to other executors when the executors change.
 *
 * Spark runs a task where the store of its partition was in the batch before, so that executors that join a query get
 * no store of its, unless tasks wait for longer than `spark.locality.wait`. A batch is planned in the query's own
 * thread: no store of the run is open then, and what Spark is told counts for the tasks of this batch.
 */
class PlacementRule extends Rule[SparkPlan] {
  override def apply(plan: SparkPlan): SparkPlan = {
    try {
      if (Jar.problem.isEmpty && conf.stateStoreProviderClass == classOf[IncrementalStateStoreProvider].getName) {
        val options = OptionTexts.of(conf)
        if (options.text("placement").equalsIgnoreCase("balanced")) {
          Placements.current.foreach(_.planned(plan, SparkSession.active, options.count("placementMoves")))
        }
      }
    } catch {
      case e: Throwable if Supervised.isSurvivable(e) =>
        logWarning("The stores of a query stay where they are: their executors cannot be compared", e)
    }
    plan
  }
}

/** The placements of all runs of an application. Safe for any thread. */
private final class Placements(context: SparkContext) extends Logging {
  import Placements._

  private val executors = Executors.of(context)
  private val times = new TaskTimes
  private val runs = new LinkedHashMap[UUID, Run](16, 0.75f, true) {
    override def removeEldestEntry(eldest: Entry[UUID, Run]): Boolean = size > MaxRuns
  }

  context.addSparkListener(times)

  /** Moves stores of a planned batch, if the executors changed since the last one. */
  def planned(plan: SparkPlan, session: SparkSession, maxMoves: Int): Unit = {
    val stages = stagesOf(plan)
    stages.flatten.flatMap(_.stateInfo).headOption.foreach { info =>
      val listing = executors.now
      Option(runs.synchronized(runs.get(info.queryRunId))) match {
        // Spark chooses for the first batch.
        case None => runs.synchronized(runs.put(info.queryRunId, new Run(info.storeVersion)))
        case Some(run) if run.looksAt(info.storeVersion, listing.generation) =>
          if (spread(run, listing.executors, stages, new Coordinator(session), maxMoves)) run.stopMoving()
        case _ => ()
      }
    }
  }

  /** Moves the stores of each stage. Returns true if nothing is left to move. */
  private def spread(
      run: Run,
      living: Seq[Executor],
      stages: Seq[Seq[StateStoreWriter]],
      coordinator: Coordinator,
      maxMoves: Int): Boolean =
    stages.zipWithIndex.map { case (writers, stage) =>
      val id = writers.head.stateInfo.get.queryRunId
      val stores = storesOf(writers, coordinator)
      // Stages with fewer partitions than there are executors do not all begin with the same executor.
      val first = if (living.isEmpty) 0 else Math.floorMod(31 * id.hashCode + stage, living.size)
      val assigned = Assignment.of(
        living.drop(first) ++ living.take(first), stores.map { case (partition, at) => partition -> at.head._2 },
        times.medians(id.toString, stage), if (maxMoves == 0) Int.MaxValue else maxMoves,
        run.moved(stage))
      assigned.moves.foreach { case (partition, to) =>
        stores(partition).foreach { case (store, _) => coordinator.place(store, to.host, to.id) }
      }
      run.left(stage, assigned.moves.map(_._1).filter(partition => living.exists(_.id == stores(partition).head._2)))
      if (assigned.moves.nonEmpty) {
        logInfo(s"Moves ${assigned.moves.size} of ${stores.size} partitions of the operators " +
          s"${writers.flatMap(_.stateInfo).map(_.operatorId).mkString(", ")} of the run $id, to the executors " +
          assigned.moves.groupBy(_._2.id).map { case (id, moved) => s"$id (${moved.size})" }.mkString(", "))
      }
      stores.nonEmpty && assigned.isComplete && assigned.moves.isEmpty
    }.forall(identity)
}

/**
 * A run of a query: the executors that it knows, and the partitions that have moved since they changed.
 *
 * @param firstVersion the version that its first batch begins with
 */
private[placement] final class Run(firstVersion: Long) {
  private var version = firstVersion
  private var generation = -1L
  private var looks = 0
  private var gone = Map.empty[Int, Set[Int]]

  /**
   * Returns true if stores may move in a batch: in a few after a change of the executors, once in each, since Spark
   * applies rules twice if it finds the session extension in two ways.
   *
   * @param ofVersion   the version that the batch begins with
   * @param ofExecutors the generation of the executors
   */
  def looksAt(ofVersion: Long, ofExecutors: Long): Boolean =
    if (version == ofVersion) false
    else {
      version = ofVersion
      if (generation != ofExecutors) {
        generation = ofExecutors
        looks = Run.Looks
        gone = Map.empty
      }
      val isLeft = looks > 0
      if (isLeft) looks -= 1
      isLeft
    }

  /** Notes that nothing is left to move until the executors change. */
  def stopMoving(): Unit = looks = 0

  /** Returns the partitions of a stage that have left a living executor since the executors changed. */
  def moved(stage: Int): Set[Int] = gone.getOrElse(stage, Set.empty)

  /** Notes partitions of a stage that leave a living executor. */
  def left(stage: Int, partitions: Seq[Int]): Unit = gone = gone.updated(stage, moved(stage) ++ partitions)
}

private[placement] object Run {
  /** The number of batches after a change of the executors in which stores may move. */
  val Looks = 8
}

private object Placements {
  private val MaxRuns = 1000

  private var ofContext: Option[(SparkContext, Placements)] = None

  /** Returns the placements of the active application; None if it has no executors beside the driver. */
  def current: Option[Placements] = synchronized {
    SparkContext.getActive.filterNot(_.isLocal).map { context =>
      if (!ofContext.exists(_._1 eq context)) ofContext = Some(context -> new Placements(context))
      ofContext.get._2
    }
  }

  /** Returns the operators of a plan that have stores, those together whose partitions run in the same task. */
  private def stagesOf(plan: SparkPlan): Seq[Seq[StateStoreWriter]] = {
    val (own, others) = splitAt(plan)
    (others :+ own).filter(_.nonEmpty)
  }

  /** Returns the operators in the stage that `plan` ends, and those of the stages before. */
  private def splitAt(plan: SparkPlan): (Seq[StateStoreWriter], Seq[Seq[StateStoreWriter]]) = {
    val (own, others) = plan.children.map(splitAt).unzip
    plan match {
      case _: Exchange => (Nil, others.flatten ++ own)
      case union: UnionExec if union.outputPartitioning.isInstanceOf[UnknownPartitioning] =>
        (Nil, others.flatten ++ own) // each input has tasks of its own
      case writer: StateStoreWriter if writer.stateInfo.isDefined => (own.flatten :+ writer, others.flatten)
      case _ => (own.flatten, others.flatten)
    }
  }

  /** Returns the stores of each partition that Spark knows an executor of, with the ids of these. */
  private def storesOf(
      writers: Seq[StateStoreWriter],
      coordinator: Coordinator): Map[Int, Seq[(StateStoreProviderId, String)]] = {
    val executors = for {
      writer <- writers
      info <- writer.stateInfo.toSeq
      partition <- 0 until info.numPartitions
      name <- StoreNames.of(writer)
      store =
        StateStoreProviderId(StateStoreId(info.checkpointLocation, info.operatorId, partition, name), info.queryRunId)
      executor <- coordinator.executorOf(store)
    } yield (partition, store, executor)
    executors.groupMap(_._1) { case (_, store, executor) => store -> executor }
  }
}

/** Spark's table, on the driver, of the executors on which stores are. Tasks run where it says, if they can. */
private final class Coordinator(session: SparkSession) {
  private val coordinator = session.streams.stateStoreCoordinator

  /** Returns the id of the executor of a store; None if no executor has reported it. */
  def executorOf(store: StateStoreProviderId): Option[String] =
    coordinator.getLocation(store).map(place => place.substring(place.lastIndexOf('_') + 1)) // executor_HOST_ID

  /** Notes an executor for a store. The other one closes its store when it hears of that. */
  def place(store: StateStoreProviderId, host: String, executor: String): Unit =
    coordinator.reportActiveInstance(store, host, executor, Nil) // the answer differs between releases
}
