package org.apache.spark.sql.execution.streaming.state.incremental.observed

import java.util.concurrent.TimeUnit

import scala.concurrent.{Await, ExecutionContext, Future}
import scala.concurrent.duration._

import org.apache.spark.internal.Logging
import org.apache.spark.rpc.{RpcEndpointRef, RpcTimeout}
import org.apache.spark.sql.execution.streaming.state.incremental.agent.CurrentMerge
import org.apache.spark.util.ThreadUtils

/**
 * Asks the executors which merges run and wait, when somebody looks: at most once in some seconds, however many look.
 * Safe for any thread.
 *
 * @param executors where their commands go, by their ids
 */
private[observed] final class CurrentMerges(executors: () => Map[String, RpcEndpointRef]) extends Logging {
  private var known: Seq[(String, CurrentMerge)] = Nil
  private var askedNs = Option.empty[Long]

  /** The merges of a run, with the executors that make them. Waits for a few seconds at most. */
  def of(run: String): Seq[(String, CurrentMerge)] = synchronized {
    val now = System.nanoTime
    if (askedNs.forall(now - _ > CurrentMerges.FreshNs)) {
      known = ask()
      askedNs = Some(System.nanoTime)
    }
    known.filter(_._2.run == run)
  }

  private def ask(): Seq[(String, CurrentMerge)] = {
    implicit val context: ExecutionContext = ThreadUtils.sameThread
    val answers = executors().toSeq.map { case (executor, commands) =>
      val answer =
        try commands.ask[String](Messages.askForMerges, CurrentMerges.Patience)
        catch { case Harmless(e) => Future.failed(e) }
      answer.map(Messages.readMerges(_).map(executor -> _)).recover { case Harmless(e) =>
        logDebug(s"Executor $executor does not say which merges it makes", e)
        Nil
      }
    }
    try Await.result(Future.sequence(answers), CurrentMerges.Patience.duration + 1.second).flatten
    catch { case Harmless(_) => answers.flatMap(_.value).flatMap(_.toOption).flatten }
  }
}

private object CurrentMerges {
  private val FreshNs = TimeUnit.SECONDS.toNanos(2)
  private val Patience = new RpcTimeout(3.seconds, "spark.rpc.askTimeout")
}
