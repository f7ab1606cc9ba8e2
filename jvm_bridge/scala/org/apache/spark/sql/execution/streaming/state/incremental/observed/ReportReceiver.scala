package org.apache.spark.sql.execution.streaming.state.incremental.observed

import java.lang.ref.WeakReference
import java.util.concurrent.{ArrayBlockingQueue, ConcurrentHashMap, RejectedExecutionException, TimeUnit}
import java.util.concurrent.atomic.{AtomicBoolean, AtomicInteger}

import scala.concurrent.{Await, ExecutionContext, Future}
import scala.concurrent.duration._

import org.apache.spark.SparkContext
import org.apache.spark.internal.Logging
import org.apache.spark.rpc.{RpcEndpointRef, RpcEnv, RpcTimeout, ThreadSafeRpcEndpoint}
import org.apache.spark.scheduler.{SparkListener, SparkListenerApplicationEnd, SparkListenerExecutorRemoved}
import org.apache.spark.sql.catalyst.expressions.NamedExpression
import org.apache.spark.sql.catalyst.plans.physical.{ClusteredDistribution, StatefulOpClusteredDistribution}
import org.apache.spark.sql.execution.streaming.state.incremental.agent.{CurrentMerge, Supervised}
import org.apache.spark.sql.execution.streaming.state.incremental.release.SparkNames.{StateStoreWriter, StreamExecution}
import org.apache.spark.sql.execution.streaming.state.incremental.settings.Declarations
import org.apache.spark.sql.streaming.StreamingQueryProgress
import org.apache.spark.status.ElementTrackingStore
import org.apache.spark.util.ThreadUtils

/**
 * The driver's end of the reports: receives the reports of executors about their stores, posts an event for each batch,
 * and shows all of it in the tab "Checkpoints". There is one for each SparkContext. None of its methods throws or
 * waits; messages that it cannot take are dropped, with one line in the log.
 */
final class ReportReceiver private (context: SparkContext) extends Logging {
  private[observed] val runs = new ReportedRuns
  private[observed] val requests = new FullRequests(runs)
  private[observed] val currentMerges = new CurrentMerges(() => requests.reachable)
  private val gauges = new Gauges(figures)
  private val inbox = new ArrayBlockingQueue[AnyRef](ReportReceiver.MaxMessages)
  private val draining = new AtomicBoolean
  private val dropped = new AtomicInteger
  private val executions = new ConcurrentHashMap[String, WeakReference[StreamExecution]]
  private val worker = ThreadUtils.newDaemonSingleThreadScheduledExecutor("state-store-reports")

  /** Returns the id of the application. */
  private[observed] def application: String = context.applicationId

  /** Returns the executors that take tasks. */
  private[observed] def executors: Seq[TakesTasks] = TakesTasks.of(context)

  /** Notes that a query has started. */
  def started(execution: StreamExecution): Unit = guarded("start of a query") {
    val options = execution.sparkSession.conf.getAll.collect {
      case (key, value) if key.startsWith(Declarations.prefix) => key.stripPrefix(Declarations.prefix) -> value
    }
    executions.put(execution.runId.toString, new WeakReference(execution))
    runs.learned(QueryFacts(
      execution.id.toString, execution.runId.toString, Option(execution.name), System.currentTimeMillis, options))
  }

  /** Notes that Spark has committed a batch. */
  def progressed(progress: StreamingQueryProgress): Unit = guarded("progress of a query") {
    val run = progress.runId.toString
    if (runs.facts(run).forall(_.id == run)) {
      runs.learned(QueryFacts(progress.id.toString, run, Option(progress.name), System.currentTimeMillis))
    }
    learnOperators(run)
    drain()
    val batch = CommittedBatch(progress.batchId, System.currentTimeMillis, progress.batchDuration)
    runs.progressed(run, batch)
    report(run, batch, ReportReceiver.Looks)
  }

  /** Notes that a query has ended. */
  def terminated(run: String, error: Option[String]): Unit = guarded("end of a query") {
    drain()
    executions.remove(run)
    requests.terminated(run)
    runs.terminated(run, error)
    runs.facts(run).foreach(gauges.ended)
    runs.view(run).filter(_.stores.nonEmpty).foreach(post)
  }

  private def figures(run: String): Option[Figures] = for {
    view <- runs.view(run)
    record <- BatchRecord.of(application, view, MergesBetween())
  } yield {
    val queries = new Queries(new Records(context.statusStore.store), Some(this))
    new Answering(queries).figuresOf(KnownQuery(view.facts.id, record, Some(view)), None)
  }

  /** Shows a batch and posts its event when all its stores have reported, or after some looks. */
  private def report(run: String, batch: CommittedBatch, looks: Int): Unit =
    if (runs.isComplete(run, batch.number + 1) || looks == 0) {
      runs.reported(run, batch)
      runs.viewAt(run, batch.number + 1).filter(_.stores.nonEmpty).foreach { view =>
        gauges.committed(view.facts)
        post(view.copy(batch = Some(batch)))
      }
    } else {
      later(ReportReceiver.LookMs) {
        drain()
        report(run, batch, looks - 1)
      }
    }

  private def post(run: RunView): Unit =
    for {
      batch <- run.batch
      record <- BatchRecord.of(application, run, runs.takeMerges(run.facts.run, batch.number))
    } context.listenerBus.post(StoresReported(BatchRecord.text(record)))

  private def learnOperators(run: String): Unit =
    for {
      facts <- runs.facts(run) if facts.operators.isEmpty
      query <- Option(executions.get(run)).flatMap(reference => Option(reference.get))
      execution <- Option(query.lastExecution)
    } {
      val operators = for {
        writer <- execution.executedPlan.collect { case writer: StateStoreWriter => writer }
        info <- writer.stateInfo
      } yield {
        // An operator without grouping keys has a single partition, whatever Spark's option says.
        val partitions = Option(writer.outputPartitioning.numPartitions).filter(_ > 0).getOrElse(info.numPartitions)
        (info.operatorId, writer.shortName, math.min(partitions, info.numPartitions), keysOf(writer))
      }
      runs.learned(facts.copy(
        operators = operators.map { case (id, name, _, _) => id -> name }.toMap,
        titles = operators.map { case (id, name, _, keys) => id -> Model.titleOf(name, keys) }.toMap,
        partitions = operators.map { case (id, _, partitions, _) => id -> partitions }.toMap))
    }

  /** Returns the names of the columns by which an operator distributes its rows. */
  private def keysOf(writer: StateStoreWriter): Seq[String] = {
    val keys = writer.requiredChildDistribution.headOption.toSeq.flatMap {
      case distribution: ClusteredDistribution => distribution.clustering
      case distribution: StatefulOpClusteredDistribution => distribution.expressions
      case _ => Nil
    }
    keys.collect { case key: NamedExpression => key.name }
  }

  private def drain(): Unit = {
    draining.set(false)
    Iterator.continually(inbox.poll()).takeWhile(_ != null).foreach { message =>
      try message match {
          case commits: Array[Byte] => CommitMessages.read(commits).foreach { case (executor, host, reports) =>
              runs.committed(executor, host, reports)
            }
          case text: String =>
            val (_, _, reports) = Messages.readReports(text)
            reports.foreach {
              case merge: MergeReport => runs.merged(merge)
              case full: FullReport => requests.answered(full)
            }
          case _ => ()
        }
      catch { case Survivable(e) => logDebug("A report of state stores cannot be read", e) }
    }
  }

  /** Runs `body` later. Returns false if nobody will: Spark stops the context, or the machine has no thread left. */
  private def later(ms: Long)(body: => Unit): Boolean =
    try {
      worker.schedule((() => guarded("report")(body)): Runnable, ms, TimeUnit.MILLISECONDS)
      true
    } catch {
      case _: RejectedExecutionException => false
      case Survivable(e) =>
        logInfo("The tab \"Checkpoints\" shows older figures: no thread can be started", e)
        false
    }

  private def guarded(event: String)(body: => Unit): Unit =
    try body
    catch { case Survivable(e) => logInfo(s"The tab \"Checkpoints\" does not show a $event", e) }

  private def enqueue(message: AnyRef): Unit =
    if (!inbox.offer(message)) {
      if (dropped.getAndIncrement() == 0) {
        logInfo("Reports of state stores arrive faster than they are read: some are dropped, and the tab " +
          "\"Checkpoints\" shows older figures")
      }
    } else if (draining.compareAndSet(false, true) && !later(0)(drain())) draining.set(false)

  private final class Endpoint(override val rpcEnv: RpcEnv) extends ThreadSafeRpcEndpoint {
    override def receive: PartialFunction[Any, Unit] = {
      case message @ (_: String | _: Array[Byte]) => enqueue(message.asInstanceOf[AnyRef])
      case (message: String, commands: RpcEndpointRef) =>
        guarded("report of an executor")(Messages.readHello(message).foreach(requests.reach(_, commands)))
    }
  }

  private def start(): Unit = {
    context.env.rpcEnv.setupEndpoint(Reporter.EndpointName, new Endpoint(context.env.rpcEnv))
    context.statusStore.store match {
      case store: ElementTrackingStore => context.listenerBus.addToStatusQueue(new RecordsListener(store))
      case _ => ()
    }
    context.addSparkListener(new ReportReceiver.Ends(() => worker.shutdownNow(), requests.lost))
    context.ui.foreach(CheckpointsTab.attach(_, Some(this)))
    context.env.metricsSystem.registerSource(gauges)
  }
}

object ReportReceiver extends Logging {
  private val MaxMessages = 4096
  private val LookMs = 50L
  private val Looks = 10

  private var current: Option[(SparkContext, Option[ReportReceiver])] = None

  /**
   * Returns the receiver of the active SparkContext, which the first call makes. Never throws.
   *
   * @return None if the reports would have no reader: the application has neither a UI, nor an event log, nor a
   *         configuration of Spark's metrics system
   */
  def start(): Option[ReportReceiver] = synchronized {
    SparkContext.getActive.flatMap { context =>
      if (!current.exists(_._1 eq context)) current = Some(context -> made(context))
      current.flatMap(_._2)
    }
  }

  private def made(context: SparkContext): Option[ReportReceiver] =
    if (context.ui.isEmpty && !context.isEventLogEnabled && !hasMetrics(context)) None
    else
      try {
        val receiver = new ReportReceiver(context)
        receiver.start()
        Some(receiver)
      } catch {
        case Survivable(e) =>
          logInfo("Spark's UI has no tab \"Checkpoints\"; queries are not affected", e)
          None
      }

  private def hasMetrics(context: SparkContext): Boolean =
    context.getConf.getAll.exists { case (name, _) => name.startsWith("spark.metrics.conf") }

  /** Ends the receiver's thread with the application, and forgets executors that are gone. */
  private final class Ends(stop: () => Unit, lost: String => Unit) extends SparkListener {
    override def onApplicationEnd(end: SparkListenerApplicationEnd): Unit = stop()
    override def onExecutorRemoved(removed: SparkListenerExecutorRemoved): Unit = lost(removed.executorId)
  }
}

/**
 * Asks the executors which merges run and wait, on demand: at most once in some seconds, however many readers
 * there are. Safe for any thread.
 *
 * @param executors returns the endpoints of the executors for commands, by the executors' ids
 */
private[observed] final class CurrentMerges(executors: () => Map[String, RpcEndpointRef]) extends Logging {
  private var knownMerges: Seq[(String, CurrentMerge)] = Nil
  private var askedNs = Option.empty[Long]

  /** Returns the merges of a run, with the executors that make them. Waits for a few seconds at most. */
  def of(run: String): Seq[(String, CurrentMerge)] = synchronized {
    val now = System.nanoTime
    if (askedNs.forall(now - _ > CurrentMerges.FreshNs)) {
      knownMerges = ask()
      askedNs = Some(System.nanoTime)
    }
    knownMerges.filter(_._2.run == run)
  }

  private def ask(): Seq[(String, CurrentMerge)] = {
    implicit val context: ExecutionContext = ThreadUtils.sameThread
    val answers = executors().toSeq.map { case (executor, commands) =>
      val answer =
        try commands.ask[String](Messages.askForMerges, CurrentMerges.Patience)
        catch { case Survivable(e) => Future.failed(e) }
      answer.map(Messages.readMerges(_).map(executor -> _)).recover { case Survivable(e) =>
        logDebug(s"Executor $executor did not list its merges", e)
        Nil
      }
    }
    try Await.result(Future.sequence(answers), CurrentMerges.Patience.duration + 1.second).flatten
    catch { case Survivable(_) => answers.flatMap(_.value).flatMap(_.toOption).flatten }
  }
}

private object CurrentMerges {
  private val FreshNs = TimeUnit.SECONDS.toNanos(2)
  private val Patience = new RpcTimeout(3.seconds, "spark.rpc.askTimeout")
}

/**
 * Matches the errors that must not reach a query or Spark, because no data depends on reports. It includes
 * LinkageError, which comes from a release of Spark with other internal classes, and OutOfMemoryError, which also comes
 * from a machine that has no thread left.
 */
private[observed] object Survivable {
  def unapply(error: Throwable): Option[Throwable] = Some(error).filter(Supervised.isSurvivable)
}
