package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.IOException
import java.nio.channels.ClosedByInterruptException

import scala.annotation.tailrec
import scala.collection.mutable

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json
import org.apache.spark.util.ShutdownHookManager

/** How an agent is started: who starts it first decides. */
final case class AgentSettings(logLevel: String, startTimeoutMs: Long)

/**
 * The agent of this JVM, whichever process it is at present: started by the first call, replaced when it dies
 * or hangs, ended with the JVM. Calls come from any thread.
 */
final class Agent private (python: Interpreter) extends Logging {
  private lazy val room = new AgentRoom
  private var current: AgentProcess = _
  private var stopped = false

  /**
   * One call of docs/protocol.md. Where the agent dies or gives no answer in time, another is started and
   * asked again: every operation of the protocol allows it.
   *
   * @throws AgentException with the agent's own error, or kind `internal` where agents keep dying
   */
  def call(
      request: ObjectNode,
      timeoutMs: Long,
      settings: AgentSettings,
      nested: Frame => Frame = Agent.noFiles): ObjectNode =
    attempt(request, timeoutMs, settings, nested, Agent.Attempts)

  /** One call that is of no importance: nothing is started for it, and it is not repeated. */
  def tell(request: ObjectNode, timeoutMs: Long): Unit =
    synchronized(Option(current)).filter(_.isAlive).foreach(_.call(request, timeoutMs, Agent.noFiles))

  /** The process id of the running agent, for diagnosis and tests. */
  def pid: Option[Long] = synchronized(Option(current).filter(_.isAlive).map(_.pid))

  @tailrec
  private def attempt(
      request: ObjectNode,
      timeoutMs: Long,
      settings: AgentSettings,
      nested: Frame => Frame,
      left: Int): ObjectNode = {
    val process = running(settings)
    val outcome: Either[IOException, ObjectNode] =
      try Right(process.call(request, timeoutMs, nested))
      catch {
        case e: ClosedByInterruptException => throw e // the task is being killed, the agent is well
        case e: CallTimeout if left <= 2 =>
          replace(process)
          throw Agent.tooSlow(request, timeoutMs, e)
        case e: IOException => Left(e)
      }
    outcome match {
      case Right(answer) => answer
      case Left(e) if left <= 1 =>
        replace(process)
        throw new AgentException("internal", s"agents died ${Agent.Attempts} times in a row during the " +
          s"call '${request.path("op").asText}': ${process.obituary}", cause = e)
      case Left(e) =>
        logWarning(s"The agent was lost during the call '${request.path("op").asText}' (${e.getMessage}); " +
          s"asking another. ${process.obituary}")
        replace(process)
        attempt(request, timeoutMs, settings, nested, if (e.isInstanceOf[CallTimeout]) 2 else left - 1)
    }
  }

  private def running(settings: AgentSettings): AgentProcess = synchronized {
    if (stopped) throw new AgentException("busy", "the JVM is shutting down")
    if (current == null || !current.isAlive) {
      current = AgentProcess.start(python, room, settings.logLevel, settings.startTimeoutMs)
    }
    current
  }

  private def replace(process: AgentProcess): Unit = {
    process.endsWithin(Agent.LastWordsMs)
    process.kill()
  }

  private def stop(): Unit = {
    val last = synchronized {
      stopped = true
      Option(current)
    }
    last.foreach { process =>
      process.stop(Agent.StopMs)
      room.remove()
    }
  }
}

object Agent {
  private val Attempts = 4
  private val LastWordsMs = 100L
  private val StopMs = 5000L
  // After the SparkContext and before Spark's temporary directories, which hold ours.
  private val ShutdownPriority = 30

  private val agents = mutable.Map.empty[String, Agent]

  /** The agent of this JVM that runs on that interpreter; nothing is started yet. */
  def of(python: Interpreter): Agent = agents.synchronized {
    if (agents.isEmpty) ShutdownHookManager.addShutdownHook(ShutdownPriority)(() => stopAll())
    agents.getOrElseUpdate(python.executable, new Agent(python))
  }

  private def stopAll(): Unit = agents.synchronized(agents.values.toSeq).foreach(_.stop())

  private val noFiles: Frame => Frame =
    frame => Frame(Json.obj("error" -> Json.obj("kind" -> "internal",
      "message" -> s"the call allows no file operation, but '${frame.header.path("fs").asText}' was asked")))

  private def tooSlow(request: ObjectNode, timeoutMs: Long, cause: Throwable): AgentException = {
    val op = request.path("op").asText
    val option = AgentStore.Prefix + (if (op == "merge") "mergeTimeout" else "callTimeout")
    new AgentException("busy", s"the call '$op' took longer than $timeoutMs ms, twice. See the executor's " +
      s"log for what the agent was doing; where storage or a large state is slow, raise $option.",
      option = Some(option), cause = cause)
  }
}
