package org.apache.spark.sql.execution.streaming.state.incremental.observed

import java.util.concurrent.{ConcurrentHashMap, Executor, TimeUnit}

import org.apache.spark.internal.Logging
import org.apache.spark.rpc.{RpcCallContext, RpcEndpointRef, RpcEnv, ThreadSafeRpcEndpoint}
import org.apache.spark.SparkEnv
import org.apache.spark.sql.execution.streaming.state.incremental.agent.Agent
import org.apache.spark.util.{RpcUtils, ThreadUtils}

/**
 * Sends reports of an executor's stores to the driver, on a daemon thread of its own, and passes the driver's commands
 * on to the stores. A report that cannot be sent is dropped: nothing waits for it, and nothing fails.
 *
 * @param env the environment of the executor whose RPC is used
 */
private[observed] final class Reporter private (env: SparkEnv) extends Logging {
  private val outbox = new Outbox(() => Reporter.isCurrent(this) && !env.isStopped, deliver)
  private var saidNobody = false
  private var driver: Option[RpcEndpointRef] = None
  private var commandsEndpoint: Option[RpcEndpointRef] = None
  private var notBeforeNs = System.nanoTime

  // In threads of their own because a command waits for the agent's answer.
  private lazy val commands = ThreadUtils.newDaemonFixedThreadPool(2, "state-store-commands")

  /** Returns true if the reporter belongs to that environment. */
  private def isOf(other: SparkEnv): Boolean = env eq other

  /** Sends a report soon. Returns at once. Safe for any thread. */
  def send(report: Report): Unit = outbox.send(report)

  private def deliver(reports: Seq[Report]): Unit =
    try connected().foreach { to =>
        val host = env.blockManager.blockManagerId.host
        val others = reports.collect { case report: RareReport => report }
        val commits = reports.collect { case report: StoreReport => report }
        if (others.nonEmpty) to.send(Messages.reports(env.executorId, host, others))
        if (commits.nonEmpty) to.send(CommitMessages.write(env.executorId, host, commits))
      }
    catch {
      case Harmless(e) =>
        driver = None
        logDebug("Reports of state stores were not sent", e)
    }

  private def connected(): Option[RpcEndpointRef] = {
    if (driver.isEmpty && System.nanoTime - notBeforeNs >= 0) {
      notBeforeNs = System.nanoTime + TimeUnit.MILLISECONDS.toNanos(Reporter.RetryMs)
      try driver = Some(connect())
      catch {
        case Harmless(e) if !saidNobody =>
          saidNobody = true
          logInfo("The driver does not listen to reports of state stores (it has neither a UI, nor an event log, nor " +
            "metrics, or an older release of the state store): none are sent")
          logDebug("The driver does not listen", e)
        case Harmless(_) => ()
      }
    }
    driver
  }

  private def connect(): RpcEndpointRef = {
    val found = RpcUtils.makeDriverRef(Reporter.EndpointName, env.conf, env.rpcEnv)
    val name = s"${Reporter.EndpointName}-commands-${env.executorId}"
    val own = commandsEndpoint.getOrElse(env.rpcEnv.setupEndpoint(name, new Commands(env.rpcEnv)))
    commandsEndpoint = Some(own)
    found.send((Messages.hello(env.executorId), own))
    found
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
    catch { case Harmless(e) => logDebug("A report of a state store was not sent", e) }

  /** Makes a store reachable for commands. */
  def add(store: ObservedStore): Unit = stores.put(store.key, store)

  /** Notes that a store is closed; keeps another provider's store of the same key. */
  def remove(store: ObservedStore): Unit = stores.remove(store.key, store)

  /** Runs `body` by an executor; `failed` is called if `body` fails, or if the machine has no thread left. */
  private[observed] def inBackground(executor: Executor)(body: => Unit)(failed: Throwable => Unit): Unit = {
    def guarded(run: => Unit): Unit =
      try run
      catch {
        case Harmless(e) =>
          logInfo("A request of the driver was not carried out", e)
          failed(e)
      }
    guarded(executor.execute(() => guarded(body)))
  }

  private def isCurrent(reporter: Reporter): Boolean = current.exists(_ eq reporter)

  // A JVM may have one SparkContext after the other, each with an environment of its own.
  private def of(env: SparkEnv): Option[Reporter] = {
    val known = current
    if (env == null || known.exists(_.isOf(env))) known.filter(_ => env != null)
    else synchronized {
      if (!current.exists(_.isOf(env))) current = Some(new Reporter(env))
      current
    }
  }
}
