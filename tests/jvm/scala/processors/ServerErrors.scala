package org.apache.spark.sql.execution.streaming.state.incremental.processors

import java.io.IOException
import java.util.concurrent.Executor

/**
 * Tests that errors which are not `NonFatal` fail the task whose processor met them, as an answer or an IOException. In
 * a thread of the server, or of a task, an OutOfMemoryError would end the executor.
 */
object ServerErrors {
  def main(arguments: Array[String]): Unit = {
    val errors = Seq(
      new IllegalStateException("a defect"), new OutOfMemoryError("Java heap space"),
      new InternalError("a mapped file"),
      new StackOverflowError, new NoClassDefFoundError("missing"))
    errors.foreach { error =>
      val answer = StateServer.answer(throw error).toSeq
      require(answer.head == StateServer.Failed && answer(1) != null, s"$error is answered by $answer")
    }
    require(StateServer.answer(7).toSeq == Seq(StateServer.Done, 7))
    require(StateServer.answer(throw new RefusedException("no")).toSeq == Seq(StateServer.Refused, "no"))
    val noThread: Executor = _ => throw new OutOfMemoryError("unable to create native thread")
    val failure =
      try { StateServer.start(() => (), noThread); None }
      catch { case e: IOException => Some(e.getMessage) }
    require(failure.exists(_.contains("raise the limit of processes or threads")), s"$failure")
    println("errors fail one task")
  }
}
