package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.IOException
import java.util.concurrent.ConcurrentHashMap

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json

/**
 * Polls an agent for its events, on a daemon thread that ends with the agent and not before: nothing that a poll or an
 * event's handler throws ends it, be it an OutOfMemoryError or the InternalError of a mapped file. The next poll
 * acknowledges an event, so that none is lost when the connection breaks. The agent may then repeat an event under its
 * number, which is handled once.
 *
 * @param name name of the thread
 * @param isAlive returns true as long as the agent lives
 * @param call asks the agent, within a time in milliseconds
 * @param handle takes the events in their order; its exceptions are logged
 */
private[agent] final class AgentEvents(
    name: String,
    isAlive: () => Boolean,
    call: (ObjectNode, Long) => ObjectNode,
    handle: AgentEvent => Unit)
    extends Logging {
  def this(process: AgentProcess, handle: AgentEvent => Unit) =
    this(s"state-store-agent-${process.pid}-events", () => process.isAlive, process.call, handle)

  @volatile private var handled = 0L
  @volatile private var thread: Thread = _

  /** Starts the thread if it does not run: at first, and again if it could not be started or has ended. */
  def ensureRunning(): Unit =
    if (thread == null || !thread.isAlive) synchronized {
      if (thread == null || !thread.isAlive) thread = Supervised.start(name)(run())
    }

  private def run(): Unit = while (isAlive()) {
    try poll()
    catch {
      case e: IOException =>
        logQuietly(logDebug("The connection for events broke", e))
        pause()
      case e: Throwable =>
        logQuietly(logWarning("The agent's events cannot be read; they are asked for again", e))
        pause()
    }
  }

  private def pause(): Unit =
    try if (isAlive()) Thread.sleep(AgentEvents.RetryPauseMs)
    catch { case _: InterruptedException => () } // nobody interrupts this thread with a purpose

  /** Logs, unless memory is too short for that. */
  private def logQuietly(log: => Unit): Unit =
    try log
    catch { case _: Throwable => () }

  private def poll(): Unit = {
    val request = Json.obj("op" -> "events", "after" -> handled, "wait_ms" -> AgentEvents.WaitMs)
    Answers.events(call(request, AgentEvents.WaitMs + AgentEvents.GraceMs)).foreach {
      case (number, event) if number > handled =>
        try handle(event)
        catch { case e: Throwable => logQuietly(logWarning(s"An event of the agent was not handled: $event", e)) }
        handled = number
      case _ => () // handled before the connection broke
    }
  }
}

private object AgentEvents {
  val WaitMs = 30000L
  val GraceMs = 60000L
  val RetryPauseMs = 100L
}

/** Listeners for events, by the number of a store's provider. Safe for any thread. */
private[agent] final class EventListeners {
  private val listeners = new ConcurrentHashMap[Long, AgentEvent => Unit]

  def add(store: Long, listener: AgentEvent => Unit): Unit = listeners.put(store, listener)

  def remove(store: Long): Unit = listeners.remove(store)

  /** Passes an event on. Drops events of a store that is closed: its directories are gone. */
  def tell(event: AgentEvent): Unit = Option(listeners.get(event.store)).foreach(_(event))
}
