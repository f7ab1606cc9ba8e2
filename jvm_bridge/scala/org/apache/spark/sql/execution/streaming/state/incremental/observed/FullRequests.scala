package org.apache.spark.sql.execution.streaming.state.incremental.observed

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import scala.collection.mutable
import scala.concurrent.duration._
import scala.jdk.CollectionConverters._
import scala.util.{Failure, Success}

import org.apache.spark.internal.Logging
import org.apache.spark.rpc.{RpcEndpointRef, RpcTimeout}
import org.apache.spark.util.ThreadUtils

/** The stores of a request: those that match each field that is given. */
private[observed] final case class FullRange(
    operator: Option[Long] = None, partition: Option[Int] = None, store: Option[String] = None) {
  def has(key: StoreKey): Boolean =
    operator.forall(_ == key.operator) && partition.forall(_ == key.partition) && store.forall(_ == key.store)
}

/** The outcome of a full checkpoint of one store. */
private[observed] final case class StoreOutcome(
    key: StoreKey, version: Option[Long], already: Boolean, tookMs: Long, failure: Option[Failed])

/**
 * A request for full checkpoints of a run's stores. Immutable.
 *
 * @param version  number of the version that Spark had committed
 * @param holders  the executors that have the wanted stores
 * @param endedMs  time when the last store answered, or the deadline passed
 * @param failure  the reason for which some checkpoints were not made
 */
private[observed] final case class FullRequest(
    id: String,
    run: String,
    range: FullRange,
    version: Long,
    holders: Map[StoreKey, String],
    askedMs: Long,
    outcomes: Map[StoreKey, StoreOutcome] = Map.empty,
    endedMs: Option[Long] = None,
    failure: Option[Failed] = None) {

  /** The stores of which full checkpoints are wanted. */
  def wanted: Set[StoreKey] = holders.keySet
}

/** The refusal of a request: an HTTP status, a kind of docs/protocol.md, and the advice to the caller. */
private[observed] final case class Refusal(status: Int, kind: String, detail: String)

/**
 * Full checkpoints that were requested of this driver. One request at a time runs for a run of a query; a second
 * request for the same stores gets the id of the first. The newest requests are kept after their end. Safe for any
 * thread.
 *
 * @param runs the stores and their executors
 */
private[observed] final class FullRequests(runs: ReportedRuns) extends Logging {
  private val requests = mutable.LinkedHashMap.empty[String, FullRequest]
  private val executors = new ConcurrentHashMap[String, RpcEndpointRef]
  private val answers = ThreadUtils.sameThread

  /** Sets the endpoint for commands to an executor. */
  def reach(executor: String, commands: RpcEndpointRef): Unit = {
    executors.put(executor, commands)
    if (executors.size > FullRequests.MaxExecutors) executors.keys.asIterator.forEachRemaining { id =>
      if (id != executor && executors.size > FullRequests.MaxExecutors) executors.remove(id)
    }
  }

  /** Notes that an executor is gone: the checkpoints that it was to make fail, and nobody asks it any more. */
  def lost(executor: String): Unit = {
    executors.remove(executor)
    synchronized(requests.values.filter(_.endedMs.isEmpty).toSeq).foreach { request =>
      val stores = request.holders.collect { case (key, `executor`) => key }.toSet
      fail(request, stores, s"executor $executor is gone: ask again after the next batch")
    }
  }

  /** Returns the endpoints for commands to executors, by the ids of the executors. */
  def reachable: Map[String, RpcEndpointRef] = executors.asScala.toMap

  /**
   * Asks for full checkpoints.
   *
   * @param ownId the caller's own id of the request: a second request with this id gets the answer of the first
   * @param user  the user who asks, if Spark knows
   * @return the id of the request, or the reason for which it is refused
   */
  def ask(run: RunView, range: FullRange, ownId: Option[String], user: Option[String]): Either[Refusal, String] = {
    val decided: Either[Refusal, (String, Option[FullRequest])] = synchronized {
      expire()
      val same = ownId.flatMap(requests.get)
      val running = requests.values.find(request => request.run == run.facts.run && request.endedMs.isEmpty)
      (same, running) match {
        case (Some(known), _) if known.run != run.facts.run || known.range != range =>
          Left(Refusal(409, "conflict",
            s"the trigger id '${known.id}' belongs to another request: choose another"))
        case (Some(known), _) => Right(known.id -> None)
        case (None, Some(known)) if known.range == range => Right(known.id -> None)
        case (None, Some(known)) => Left(Refusal(409, "conflict",
            s"a full checkpoint of other stores of this query is being made, ${known.id}: ask again when it has ended"))
        case (None, None) =>
          begin(run, range, ownId.getOrElse(UUID.randomUUID.toString)).map(request => request.id -> Some(request))
      }
    }
    decided.map { case (id, fresh) =>
      fresh.foreach(command(_, run, user))
      id
    }
  }

  /** Returns a request; None if there never was one with that id, or it is forgotten. */
  def find(id: String): Option[FullRequest] = synchronized {
    expire()
    requests.get(id)
  }

  /** Returns all requests that are remembered, oldest first. */
  def all: Seq[FullRequest] = synchronized {
    expire()
    requests.values.toSeq
  }

  /** Takes an executor's answer for a store. */
  def answered(report: FullReport): Unit = end(report.request,
    Seq(StoreOutcome(
      report.key, report.version, report.already, report.atMs, report.failure)))

  /** Notes that a run has ended: the checkpoints that are still missing fail. */
  def terminated(run: String): Unit =
    synchronized(requests.values.filter(request => request.run == run && request.endedMs.isEmpty).toSeq)
      .foreach(failRest(_, "the query ended before it was made"))

  private def begin(run: RunView, range: FullRange, id: String): Either[Refusal, FullRequest] = {
    val keys = run.stores.filter(store => range.has(store.key)).map(store => store.key -> store.executor).toMap
    (run.version, run.ended) match {
      case (_, true) => Left(Refusal(409, "missing",
          "the query has ended: use `state-store full DIRECTORY` for its checkpoint"))
      case (None, _) => Left(Refusal(409, "missing",
          "no batch of the query has ended yet, so there is no version: ask again after the first"))
      case (Some(_), _) if keys.isEmpty =>
        Left(Refusal(404, "missing",
          "the query has no such store: see its list of stores"))
      case (Some(version), _) =>
        val request = FullRequest(id, run.facts.run, range, version, keys, System.currentTimeMillis)
        requests.put(id, request)
        while (requests.size > FullRequests.MaxRequests) requests.remove(requests.head._1)
        Right(request)
    }
  }

  private def command(request: FullRequest, run: RunView, user: Option[String]): Unit = {
    val storesOfRequest = run.stores.filter(store => request.wanted(store.key))
    storesOfRequest.groupBy(_.executor).foreach { case (executor, stores) =>
      val keys = stores.map(_.key)
      def fail(reason: String): Unit = end(request.id,
        keys.map(
          StoreOutcome(_, None, already = false, System.currentTimeMillis, Some(Failed("busy", reason)))))
      val by = user.fold("")(name => s" by ${name.filterNot(_.isControl).take(100)}")
      val text = Messages.command(
        FullCommand(request.id, request.version, s"requested$by in Spark's UI or by its REST API", keys))
      Option(executors.get(executor)) match {
        case None => fail(s"executor $executor is not known: ask again after the next batch")
        case Some(commands) =>
          try commands.ask[String](text, FullRequests.Patience).onComplete {
              case Success("taken") => ()
              case Success(other) =>
                fail(s"executor $executor has another release of the state store (it answers '$other')")
              case Failure(e) => fail(s"executor $executor is gone or does not answer (${e.getMessage}): ask again")
            }(answers)
          catch { case Survivable(e) => fail(s"executor $executor cannot be reached (${e.getMessage}): ask again") }
      }
    }
  }

  private def end(id: String, outcomes: Seq[StoreOutcome]): Unit = synchronized {
    requests.get(id).filter(_.endedMs.isEmpty).foreach { request =>
      val fresh = outcomes.filter(outcome => request.wanted(outcome.key) && !request.outcomes.contains(outcome.key))
        .map(outcome => outcome.key -> outcome.copy(tookMs = math.max(0, outcome.tookMs - request.askedMs)))
      val updated = request.copy(outcomes = request.outcomes ++ fresh)
      requests.update(id, if (updated.outcomes.size < updated.wanted.size) updated else ended(updated))
    }
  }

  private def ended(request: FullRequest): FullRequest = {
    val failed = request.outcomes.values.filter(_.failure.isDefined).toSeq
    request.copy(
      endedMs = Some(System.currentTimeMillis),
      failure = failed.headOption.map { first =>
        val cause = first.failure.get
        Failed(
          cause.kind, s"${failed.size} of ${request.wanted.size} stores failed, the first because: ${cause.message}")
      })
  }

  private def failRest(request: FullRequest, reason: String): Unit = fail(request, request.wanted, reason)

  /** Lets the checkpoints of some stores fail of which no outcome is known. */
  private def fail(request: FullRequest, stores: Set[StoreKey], reason: String): Unit =
    end(request.id,
      (stores -- request.outcomes.keySet).toSeq
        .map(StoreOutcome(_, None, already = false, System.currentTimeMillis, Some(Failed("busy", reason)))))

  private def expire(): Unit = {
    val now = System.currentTimeMillis
    requests.values
      .filter(request => request.endedMs.isEmpty && now - request.askedMs > FullRequests.DeadlineMs).toSeq
      .foreach(failRest(_,
        s"its executor did not report it within ${FullRequests.DeadlineMs / 60000} minutes; " +
          "the next restart of the query may still find it"))
  }
}

private[observed] object FullRequests {
  /** The number of requests that are remembered. */
  private val MaxRequests = 100

  private val MaxExecutors = 2000

  /** A store that has not answered after this time counts as failed. */
  val DeadlineMs: Long = 30 * 60000L

  private val Patience = new RpcTimeout(30.seconds, "spark.rpc.askTimeout")
}
