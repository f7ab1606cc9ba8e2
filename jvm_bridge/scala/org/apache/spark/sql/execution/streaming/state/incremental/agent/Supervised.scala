package org.apache.spark.sql.execution.streaming.state.incremental.agent

import scala.util.control.ControlThrowable

import org.apache.spark.internal.Logging

/** Long-lived daemon threads: no error of a step ends them, and a failed start is reported instead of thrown. */
private[incremental] object Supervised extends Logging {
  /**
   * Starts a daemon thread.
   *
   * @return the thread; null if the machine has no thread left, so that the caller tries again later
   */
  def start(name: String)(body: => Unit): Thread = {
    val thread = new Thread(() => body, name)
    thread.setDaemon(true)
    try {
      thread.start()
      thread
    } catch {
      case e: OutOfMemoryError => // "unable to create native thread"
        report(
          s"The thread $name cannot be started; raise the limit of processes or threads of this container or " +
            "user",
          e)
        null
    }
  }

  /**
   * Starts a daemon thread without which the caller cannot go on.
   *
   * @throws AgentException if the machine has no thread left; an OutOfMemoryError would end the executor
   */
  def startOrFail(name: String)(body: => Unit): Thread =
    Option(start(name)(body)).getOrElse(throw noThread(name, null))

  /** Returns the error for a thread that cannot be started. */
  def noThread(name: String, cause: Throwable): AgentException =
    new AgentException("busy",
      s"the thread $name cannot be started: raise the limit of processes or threads of this " +
        "container or user.",
      cause = cause)

  /** Repeats a step as long as `alive` is true. Reports a step that fails, and repeats it after a pause. */
  def repeat(failure: String, alive: => Boolean, pauseMs: Long)(step: => Unit): Unit = while (alive) {
    try step
    catch {
      case e: Throwable if isSurvivable(e) =>
        report(failure, e)
        Thread.sleep(pauseMs)
    }
  }

  /**
   * Runs the work of a pool's thread, and logs its error: Spark ends an executor for any error that a thread does not
   * catch.
   */
  def guarded(failure: => String)(body: => Unit): Unit =
    try body
    catch { case e: Throwable if isSurvivable(e) => report(failure, e) }

  /**
   * Returns true if a thread goes on after this error. A mapped file whose disk fails throws InternalError; neither
   * it nor OutOfMemoryError is `NonFatal`.
   */
  def isSurvivable(e: Throwable): Boolean = e match {
    case _: InterruptedException | _: ControlThrowable => false
    case _: OutOfMemoryError | _: InternalError | _: StackOverflowError | _: LinkageError => true
    case _: VirtualMachineError => false
    case _ => true
  }

  /** Logs an error, even if memory is too short to log it. */
  def report(failure: String, e: Throwable): Unit =
    try logWarning(failure, e)
    catch { case _: OutOfMemoryError => () }
}
