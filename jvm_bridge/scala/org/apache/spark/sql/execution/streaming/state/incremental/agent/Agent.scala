package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.IOException
import java.nio.channels.ClosedByInterruptException

import scala.annotation.tailrec
import scala.collection.mutable
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json
import org.apache.spark.util.ShutdownHookManager

/** Settings of an agent, which serves the whole executor: those of the query that first needs it. */
private[agent] final case class AgentSettings(logLevel: String, startTimeoutMs: Long)

/**
 * The agent of this JVM, as a process that is replaced: the first call starts it, another takes its place if it dies or
 * hangs, and it ends with the JVM. Safe for any thread.
 */
final class Agent private (python: Interpreter) extends Logging {
  private lazy val directory = new AgentDirectory
  private val files = new FileServers
  private val listeners = new EventListeners
  private var current: AgentProcess = _
  private var events: AgentEvents = _
  private var lent = 0
  private var lacking = 0
  private var stopped = false

  // Read without the lock, which a thread holds while it starts an agent.
  @volatile private var startedAgain = 0L

  /** Returns how often another agent took the place of one that had died or hung. Waits for nothing. */
  def restarts: Long = startedAgain

  /**
   * Makes one call of docs/protocol.md. If the agent dies, another is started and asked again: every operation of the
   * protocol allows it. If the agent gives no answer in time, the call fails; only an agent that does not answer a ping
   * either is replaced, and its successor asked again.
   *
   * @param request makes the request for each agent that is asked: it lists the stores that this JVM has open by then
   * @param timeoutMs bound of each attempt, in milliseconds
   * @param option the option that sets this bound, for the message
   * @return the fields of the answer's `ok`
   * @throws AgentException with the agent's own error; of kind `busy` if the call took too long, of kind `internal` if
   *                        agents keep dying
   */
  def call(request: () => ObjectNode, timeoutMs: Long, settings: AgentSettings, option: String): ObjectNode =
    attempt(request, timeoutMs, settings, option, Agent.Attempts)

  /**
   * Makes a call whose loss does no harm: it starts no agent, and is not repeated.
   *
   * @return the answer; None if no agent runs
   */
  private[agent] def tell(request: ObjectNode, timeoutMs: Long): Option[ObjectNode] =
    synchronized(Option(current)).filter(_.isAlive).map(_.call(request, timeoutMs))

  /** Returns the merges that run or wait; none if the agent does not run or does not answer in time. */
  private def currentMerges(timeoutMs: Long): Seq[CurrentMerge] =
    try synchronized(Option(current)).filter(_.isAlive).toSeq
        .flatMap(process => Answers.currentMerges(process.call(Json.obj("op" -> "status"), timeoutMs)))
    catch {
      case NonFatal(e) =>
        logDebug("The agent did not list its merges", e)
        Nil
    }

  /** Lets the agent ask for the files of a store, and the listener hear the events of the store. */
  def register(store: Long, storeFiles: FileCalls, listener: AgentEvent => Unit): Unit = {
    files.add(store, storeFiles)
    listeners.add(store, listener)
  }

  /**
   * Notes that a store is closed.
   *
   * @param owed the call that closed it, if the agent still makes a merge of it, and reads and writes its files until
   *             the event `closed`
   */
  def unregister(store: Long, owed: Option[ObjectNode]): Unit = {
    listeners.remove(store)
    owed.fold(files.remove(store))(files.keepUntilClosed(store, _))
  }

  /**
   * Closes the stores again of which the agent before owed a merge: their local files are still there, and the merge is
   * made when the next provider needs one. If this agent ends as well, the next repeats it.
   */
  private def closeAgain(process: AgentProcess): Unit = {
    val closes = files.closes
    if (closes.nonEmpty) Supervised.start(s"state-store-closes-${process.pid}") {
      for ((store, close) <- closes)
        try if (!process.call(close, Agent.PingMs).path("owed").asBoolean) files.remove(store)
        catch { case NonFatal(e) => logWarning(s"The agent did not close a store again: ${e.getMessage}") }
    }
  }

  private def hear(event: AgentEvent): Unit = event match {
    case StoreClosed(store) => files.remove(store)
    case _ => listeners.tell(event)
  }

  /** Lends the agent at least this many connections for file requests. */
  private[agent] def lend(connections: Int): Unit = synchronized {
    val more = connections - lent
    lent = math.max(lent, connections)
    if (current != null && current.isAlive) lendTo(current, more)
  }

  /** Returns the process id of the running agent, for diagnosis and tests. */
  def pid: Option[Long] = synchronized(Option(current).filter(_.isAlive).map(_.pid))

  @tailrec
  private def attempt(
      request: () => ObjectNode,
      timeoutMs: Long,
      settings: AgentSettings,
      option: String,
      left: Int): ObjectNode = {
    val process = running(settings)
    val asked = request()
    val op = asked.path("op").asText
    val outcome: Either[IOException, ObjectNode] =
      try Right(process.call(asked, timeoutMs))
      catch {
        case e: ClosedByInterruptException => throw e // Spark kills the task; the agent works
        case e: CallTimeout if process.answersWithin(math.min(timeoutMs, Agent.PingMs)) =>
          throw Agent.tooSlow(op, timeoutMs, option, e)
        case e: IOException => Left(e)
      }
    outcome match {
      case Right(answer) => answer
      case Left(e) if left <= 1 =>
        replace(process)
        throw new AgentException("internal",
          s"agents died ${Agent.Attempts} times in a row during the " +
            s"call '$op': ${process.exitDescription}",
          cause = e)
      case Left(e) =>
        val failure =
          if (e.isInstanceOf[CallTimeout]) "The agent hangs during the call"
          else "The agent was lost during the call"
        logWarning(s"$failure '$op' (${e.getMessage}); asking another. ${process.exitDescription}")
        replace(process)
        attempt(request, timeoutMs, settings, option, left - 1)
    }
  }

  private def running(settings: AgentSettings): AgentProcess = synchronized {
    if (stopped) throw new AgentException("busy", "the JVM is shutting down")
    if (current == null || !current.isAlive) {
      if (current != null) startedAgain += 1
      current = start(settings, Agent.Attempts)
      lacking = 0
      lendTo(current, lent)
      closeAgain(current)
      events = new AgentEvents(current, hear)
    }
    if (lacking > 0) lendTo(current, lacking)
    events.ensureRunning()
    current
  }

  @tailrec
  private def start(settings: AgentSettings, left: Int): AgentProcess = {
    val outcome =
      try Right(AgentProcess.start(python, directory, settings.logLevel, settings.startTimeoutMs))
      catch { case e: AgentKilled => Left(e) }
    outcome match {
      case Right(process) => process
      case Left(e) if left <= 1 =>
        throw new AgentException("internal",
          s"agents were killed ${Agent.Attempts} times in a row before they " +
            s"answered: ${e.getMessage}",
          cause = e)
      case Left(e) =>
        logWarning(s"The agent was killed before it answered; starting another. ${e.getMessage}")
        start(settings, left - 1)
    }
  }

  /** Starts threads that serve files. The next call tries again to start those that could not be started. */
  private def lendTo(process: AgentProcess, connections: Int): Unit = {
    val started = Iterator.range(0, connections)
      .takeWhile(_ => FileServer.start(process, files, s"state-store-files-${process.pid}")).size
    lacking = math.max(0, connections - started)
  }

  private def replace(process: AgentProcess): Unit = {
    process.endsWithin(Agent.ExitWaitMs)
    process.kill()
  }

  private def stop(): Unit = {
    val last = synchronized {
      stopped = true
      Option(current)
    }
    last.foreach { process =>
      process.stop(Agent.StopMs)
      directory.remove()
    }
  }
}

object Agent {
  private val Attempts = 4
  private val ExitWaitMs = 100L
  private val StopMs = 5000L
  // A busy agent answers a ping at once; one that swaps or computes much may need seconds.
  private val PingMs = 10000L
  // After the SparkContext and before Spark's temporary directories, which hold ours.
  private val ShutdownPriority = 30

  private val agents = mutable.Map.empty[String, Agent]

  /** Returns the agent of this JVM that runs on an interpreter, and starts nothing. */
  def of(python: Interpreter): Agent = agents.synchronized {
    if (agents.isEmpty) ShutdownHookManager.addShutdownHook(ShutdownPriority)(() => stopAll())
    agents.getOrElseUpdate(python.executable, new Agent(python))
  }

  /**
   * Returns the merges of this JVM's agents that run or wait.
   *
   * @param timeoutMs how long each agent may take to answer
   */
  def currentMerges(timeoutMs: Long): Seq[CurrentMerge] =
    agents.synchronized(agents.values.toSeq).flatMap(_.currentMerges(timeoutMs))

  private def stopAll(): Unit = agents.synchronized(agents.values.toSeq).foreach(_.stop())

  private def tooSlow(op: String, timeoutMs: Long, option: String, cause: Throwable): AgentException =
    new AgentException("busy",
      s"the call '$op' took longer than $timeoutMs ms; the agent works otherwise, " +
        "and goes on with it. The executor's log has its steps; if storage is slow or the state is large, " +
        s"raise $option.",
      option = Some(option), cause = cause)
}
