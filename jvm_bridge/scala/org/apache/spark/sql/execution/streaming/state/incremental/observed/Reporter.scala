package org.apache.spark.sql.execution.streaming.state.incremental.observed

import java.util.{ArrayList => JavaArrayList}
import java.util.concurrent.{ArrayBlockingQueue, ConcurrentHashMap, Executor, TimeUnit}
import java.util.concurrent.atomic.AtomicBoolean

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.spark.SparkEnv
import org.apache.spark.internal.Logging
import org.apache.spark.rpc.{RpcCallContext, RpcEndpointRef, RpcEnv, ThreadSafeRpcEndpoint}
import org.apache.spark.sql.execution.streaming.state.incremental.agent.{
  Agent, AgentException, FullAnswer, MergedStore, MergeFailed, Supervised
}
import org.apache.spark.sql.execution.streaming.state.incremental.local.{
  CommittedVersion, LocalStore, MergeWatcher, OpenTransaction
}
import org.apache.spark.sql.execution.streaming.state.incremental.settings.Declarations
import org.apache.spark.util.{RpcUtils, ThreadUtils}

// Reports of a store to the driver: a store makes them, the executor's reporter queues and sends them in the
// background.

/**
 * The reports of a store to the driver, of its commits and merges, and the full checkpoints that the driver requests.
 * Nothing here throws, waits for the driver or slows a task. Safe for any thread.
 *
 * @param key         identifies the store
 * @param root        the query's checkpoint directory for state, as a URI
 * @param local       the store
 * @param committedId returns the id under which Spark committed a version, from the query's commit log; None if Spark
 *                    gives no ids (checkpoint format 1)
 */
final class ObservedStore(val key: StoreKey, root: String, local: LocalStore, committedId: Long => Option[String])
    extends MergeWatcher with Logging {
  private val waiting = mutable.Map.empty[String, FullCommand]
  private var isKnown = false

  // The restarts before the provider was made do not belong to this run.
  private val restartsBefore = local.agentRestarts

  /**
   * Reports a commit.
   *
   * @param made   the commit
   * @param opened the start of its transaction
   */
  def committed(made: CommittedVersion, opened: OpenTransaction): Unit =
    try {
      introduce()
      Reporter.send(report(made, opened))
    } catch { case Survivable(e) => logDebug(s"A commit of $key was not reported", e) }

  /** Notes that the store is closed: requests that still wait fail. */
  def close(): Unit = {
    Reporter.remove(this)
    val reports = synchronized {
      val all = waiting.values.toSeq
      waiting.clear()
      all
    }
    val closed = Failed("busy", "the store was closed on this executor; another may have opened it: ask again")
    reports.foreach(answer(_, Left(closed)))
  }

  /** Carries a command of the driver out; its answer is a report. */
  private[observed] def full(command: FullCommand): Unit = {
    synchronized(waiting.put(command.request, command))
    try {
      val answer = ask(command)
      if (answer.already) end(command.request, Right(answer.version.number), already = true)
    } catch {
      case e: AgentException => end(command.request, Left(failure(e)))
      case Survivable(e) => end(command.request, Left(Failed("internal", e.toString)))
    }
  }

  override def merged(made: MergedStore): Unit = guarded {
    Reporter.send(MergeReport(
      key, System.currentTimeMillis, made.version.number, made.kind, made.reason, made.tookMs, made.uploadedBytes,
      made.sharedFiles, made.newFiles, made.ownFiles, made.newBytes, made.newBytesBefore, None))
    if (made.kind == Declarations.fullMerge) {
      val (met, early) = synchronized(waiting.values.toSeq).partition(_.version <= made.version.number)
      met.foreach(command => end(command.request, Right(made.version.number)))
      early.foreach(full) // a full merge of an older version ran in place of the requested merge
    }
  }

  override def failed(failure: MergeFailed): Unit = guarded {
    Reporter.send(MergeReport(
      key, System.currentTimeMillis, failure.version, failure.kind, failure.reason, 0, 0, 0, 0, 0, 0, 0,
      Some(this.failure(failure.error))))
    if (failure.kind == Declarations.fullMerge) {
      synchronized(waiting.keys.toSeq).foreach(request => end(request, Left(this.failure(failure.error))))
    }
  }

  private def ask(command: FullCommand): FullAnswer =
    local.full(command.version, committedId(command.version), command.reason)

  private def end(request: String, outcome: Either[Failed, Long], already: Boolean = false): Unit =
    synchronized(waiting.remove(request)).foreach(answer(_, outcome, already))

  private def answer(command: FullCommand, outcome: Either[Failed, Long], already: Boolean = false): Unit =
    Reporter.send(FullReport(
      key, System.currentTimeMillis, command.request, outcome.toOption, already, outcome.left.toOption))

  private def introduce(): Unit = {
    val first = synchronized {
      val was = isKnown
      isKnown = true
      !was
    }
    if (first) {
      local.merges.watch(this)
      Reporter.add(this)
    }
  }

  private def report(made: CommittedVersion, opened: OpenTransaction): StoreReport = {
    val chain = made.answer.chain
    val merges = local.merges.counters
    val (failuresInRow, lastFailure) = local.merges.failing
    val memory = local.memoryUse
    StoreReport(
      key = key, atMs = System.currentTimeMillis, root = root, version = made.version.number, id = made.version.id,
      keys = made.keys,
      variables = made.families.byName.toSeq
        .map { case (name, family) => Variable(name, family.internal, family.keys) },
      deltaBytes = made.delta.bytes, writeMs = made.writeMs, storeMs = made.commitMs,
      memoryBytes = memory.memtableBytes + memory.recentBytes + memory.indexBytes + memory.baseBytes,
      chainDeltas = chain.deltas, deltasSinceFull = chain.deltasSinceFull,
      mergesSinceFull = chain.mergesSinceFull, chainFiles = chain.files, chainBytes = chain.bytes,
      sharedFiles = chain.sharedFiles, sharedBytes = chain.sharedBytes, snapshotVersion = chain.snapshotVersion,
      snapshotKind = chain.snapshotKind, fullVersion = chain.fullVersion,
      sinceSnapshotMs = made.answer.ages.sinceSnapshotMs, sinceFullMs = made.answer.ages.sinceFullMs,
      predictedMs = Some(made.answer.predictedRestoreMs),
      objectiveMs = Some(made.answer.restoreObjectiveMs).filter(_ > 0),
      merges = MergeCounts(merges.merges, merges.fulls, merges.ingests, merges.failures),
      failuresInRow = failuresInRow, lastFailure = lastFailure.map(failure), damagedFiles = local.damagedFiles,
      agentRestarts = local.agentRestarts, agentRestartsBefore = restartsBefore,
      restored = opened.restored.map { answer =>
        RestoreReport(
          answer.base.sparse.nonEmpty, opened.loadMs, answer.predictedMs, answer.files, answer.deltas,
          answer.fetchedBytes)
      })
  }

  private def failure(e: AgentException): Failed = Failed(e.kind, e.getMessage)

  private def guarded(body: => Unit): Unit =
    try body
    catch { case Survivable(e) => logInfo(s"A merge of $key was not reported", e) }
}

/**
 * Sends reports of an executor's stores to the driver, on a daemon thread of its own, and passes the driver's commands
 * on to the stores. A report that cannot be sent is dropped: nothing waits for it, and nothing fails.
 *
 * @param env the environment of the executor whose RPC is used
 */
private[observed] final class Reporter private (env: SparkEnv) extends Logging {
  private val queue = new ReportQueue(() => Reporter.isCurrent(this) && !env.isStopped, deliver)
  private var saidNobody = false
  private var driver: Option[RpcEndpointRef] = None
  private var commandsEndpoint: Option[RpcEndpointRef] = None
  private var notBeforeNs = System.nanoTime

  // In threads of their own because a command waits for the agent's answer.
  private lazy val commands = ThreadUtils.newDaemonFixedThreadPool(2, "state-store-commands")

  /** Returns true if the reporter belongs to that environment. */
  private def isOf(other: SparkEnv): Boolean = env eq other

  /** Sends a report soon. Returns at once. Safe for any thread. */
  def send(report: Report): Unit = queue.send(report)

  private def deliver(reports: Seq[Report]): Unit =
    try connected().foreach { to =>
        val host = env.blockManager.blockManagerId.host
        val others = reports.collect { case report: RareReport => report }
        val commits = reports.collect { case report: StoreReport => report }
        if (others.nonEmpty) to.send(Messages.reports(env.executorId, host, others))
        if (commits.nonEmpty) to.send(CommitMessages.write(env.executorId, host, commits))
      }
    catch {
      case Survivable(e) =>
        driver = None
        logDebug("Reports of state stores were not sent", e)
    }

  private def connected(): Option[RpcEndpointRef] = {
    if (driver.isEmpty && System.nanoTime - notBeforeNs >= 0) {
      notBeforeNs = System.nanoTime + TimeUnit.MILLISECONDS.toNanos(Reporter.RetryMs)
      try driver = Some(connect())
      catch {
        case Survivable(e) if !saidNobody =>
          saidNobody = true
          logInfo("The driver does not listen to reports of state stores (it has neither a UI, nor an event log, nor " +
            "metrics, or an older release of the state store): none are sent")
          logDebug("The driver does not listen", e)
        case Survivable(_) => ()
      }
    }
    driver
  }

  private def connect(): RpcEndpointRef = {
    val endpoint = RpcUtils.makeDriverRef(Reporter.EndpointName, env.conf, env.rpcEnv)
    val name = s"${Reporter.EndpointName}-commands-${env.executorId}"
    val own = commandsEndpoint.getOrElse(env.rpcEnv.setupEndpoint(name, new Commands(env.rpcEnv)))
    commandsEndpoint = Some(own)
    endpoint.send((Messages.hello(env.executorId), own))
    endpoint
  }

  private final class Commands(override val rpcEnv: RpcEnv) extends ThreadSafeRpcEndpoint {
    override def receiveAndReply(context: RpcCallContext): PartialFunction[Any, Unit] = {
      case message: String =>
        Messages.readCommand(message) match {
          case Some(command) =>
            context.reply("taken")
            command.stores.foreach { key =>
              Reporter.inBackground(commands)(full(command, key)) { e =>
                refuse(command, key, s"executor ${env.executorId} cannot take the request (${e.getMessage}): ask again")
              }
            }
          case None if Messages.asksForMerges(message) =>
            Reporter.inBackground(commands)(
              context.reply(Messages.merges(Agent.currentMerges(Reporter.AgentPatienceMs))))(context.sendFailure)
          case None => context.reply("unknown")
        }
    }
  }

  private def full(command: FullCommand, key: StoreKey): Unit = Reporter.stores.get(key) match {
    case null =>
      refuse(command, key,
        s"executor ${env.executorId} does not have the store open any more: ask again after the next batch")
    case store => store.full(command)
  }

  private def refuse(command: FullCommand, key: StoreKey, reason: String): Unit =
    send(FullReport(
      key, System.currentTimeMillis, command.request, None, already = false, Some(Failed("busy", reason))))
}

private[observed] object Reporter extends Logging {
  /** The name of the driver's endpoint. */
  val EndpointName = "incremental-state-store"

  private val RetryMs = 60000L
  private val AgentPatienceMs = 2000L

  private val stores = new ConcurrentHashMap[StoreKey, ObservedStore]

  @volatile private var current: Option[Reporter] = None

  /** Sends a report for the executor that this JVM is now. Never throws. */
  def send(report: Report): Unit =
    try of(SparkEnv.get).foreach(_.send(report))
    catch { case Survivable(e) => logDebug("A report of a state store was not sent", e) }

  /** Makes a store reachable for commands. */
  def add(store: ObservedStore): Unit = stores.put(store.key, store)

  /** Notes that a store is closed; keeps another provider's store of the same key. */
  def remove(store: ObservedStore): Unit = stores.remove(store.key, store)

  /** Runs `body` by an executor; `failed` is called if `body` fails, or if the machine has no thread left. */
  private[observed] def inBackground(executor: Executor)(body: => Unit)(failed: Throwable => Unit): Unit = {
    def guarded(run: => Unit): Unit =
      try run
      catch {
        case Survivable(e) =>
          logInfo("A request of the driver was not carried out", e)
          failed(e)
      }
    guarded(executor.execute(() => guarded(body)))
  }

  private def isCurrent(reporter: Reporter): Boolean = current.exists(_ eq reporter)

  // A JVM may have one SparkContext after the other, each with an environment of its own.
  private def of(env: SparkEnv): Option[Reporter] = {
    val reporter = current
    if (env == null || reporter.exists(_.isOf(env))) reporter.filter(_ => env != null)
    else synchronized {
      if (!current.exists(_.isOf(env))) current = Some(new Reporter(env))
      current
    }
  }
}

/**
 * Reports that wait to be delivered, and the daemon thread that delivers them. No error of a delivery ends the thread,
 * and a thread that cannot be started is tried again with a later report.
 *
 * @param isWanted returns false when the thread is to end
 * @param deliver  delivers some reports; those of a call that fails are lost
 * @param start    starts a thread; returns null if the machine has none left
 * @param retryMs  the least time between two tries to start the thread
 * @param pauseMs  the pause of the thread after an error
 */
private[observed] final class ReportQueue(
    isWanted: () => Boolean,
    deliver: Seq[Report] => Unit,
    start: (() => Unit) => Thread = ReportQueue.start,
    retryMs: Long = 60000,
    pauseMs: Long = 1000)
    extends Logging {
  private val queue = new ArrayBlockingQueue[Report](ReportQueue.MaxWaiting)
  private val saidFull = new AtomicBoolean
  private var notBeforeNs = System.nanoTime
  @volatile private var thread: Thread = null

  /** Delivers a report soon; one that finds no room is dropped. Returns at once. Safe for any thread. */
  def send(report: Report): Unit = {
    if (!queue.offer(report) && saidFull.compareAndSet(false, true)) {
      logInfo(s"More than ${ReportQueue.MaxWaiting} reports of state stores wait to be sent to the driver: " +
        "the others are dropped, and the tab \"Checkpoints\" of Spark's UI shows older figures")
    }
    ensureRunning()
  }

  private def ensureRunning(): Unit =
    if (!isRunning) synchronized {
      if (!isRunning && System.nanoTime - notBeforeNs >= 0) {
        notBeforeNs = System.nanoTime + TimeUnit.MILLISECONDS.toNanos(retryMs)
        thread = start(() => run())
      }
    }

  private def isRunning: Boolean = thread != null && thread.isAlive

  private def run(): Unit =
    try Supervised.repeat("Reports of state stores were not sent", isWanted(), pauseMs)(step())
    catch { case _: InterruptedException => () } // a later report starts another thread

  private def step(): Unit =
    Option(queue.poll(ReportQueue.PollMs, TimeUnit.MILLISECONDS)).foreach { first =>
      Thread.sleep(ReportQueue.LingerMs) // the stores of an executor commit at nearly the same time
      val others = new JavaArrayList[Report]
      queue.drainTo(others, ReportQueue.MaxInMessage)
      deliver(first +: others.asScala.toSeq)
    }
}

private[observed] object ReportQueue {
  private val MaxWaiting = 10000
  private val MaxInMessage = 200
  private val LingerMs = 20L
  private val PollMs = 5000L

  private def start(run: () => Unit): Thread = Supervised.start("state-store-reports")(run())
}
