package org.apache.spark.sql.execution.streaming.state.incremental.agent

import scala.util.control.ControlThrowable

import org.apache.spark.internal.Logging

/** Long-lived daemon threads: no error of one step ends them, and a start that fails is reported, not thrown. */
private[agent] object Supervised extends Logging {
  /**
   * Starts a daemon thread.
   *
   * @return null where the machine has no thread left: the caller tries again later
   */
  def start(name: String)(body: => Unit): Thread = {
    val thread = new Thread(() => body, name)
    thread.setDaemon(true)
    try {
      thread.start()
      thread
    } catch {
      case e: OutOfMemoryError => // "unable to create native thread"
        report(s"The thread $name cannot be started; raise the limit of processes or threads of this container or user", e)
        null
    }
  }

  /**
   * Starts a daemon thread that the caller cannot do without.
   *
   * @throws AgentException if the machine has no thread left; an OutOfMemoryError would end the executor
   */
  def startOrFail(name: String)(body: => Unit): Thread =
    Option(start(name)(body)).getOrElse(throw noThread(name, null))

  /** The error for a thread that cannot be started. */
  def noThread(name: String, cause: Throwable): AgentException =
    new AgentException("busy", s"the thread $name cannot be started: raise the limit of processes or threads of this " +
      "container or user.", cause = cause)

  /** Runs a step again and again while `alive`. A step that fails is reported, and repeated after a pause. */
  def repeat(failure: String, alive: => Boolean, pauseMs: Long)(step: => Unit): Unit = while (alive) {
    try step
    catch {
      case e: Throwable if isSurvivable(e) =>
        report(failure, e)
        Thread.sleep(pauseMs)
    }
  }

  /**
   * Whether a thread goes on after this error. InternalError is what a mapped file throws whose disk fails; neither
   * it nor OutOfMemoryError is `NonFatal`.
   */
  def isSurvivable(e: Throwable): Boolean = e match {
    case _: InterruptedException | _: ControlThrowable => false
    case _: OutOfMemoryError | _: InternalError | _: StackOverflowError | _: LinkageError => true
    case _: VirtualMachineError => false
    case _ => true
  }

  /** Logs an error, and survives where even that fails. */
  def report(what: String, e: Throwable): Unit =
    try logWarning(what, e)
    catch { case _: OutOfMemoryError => () }
}
