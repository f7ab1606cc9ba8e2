package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.{ByteArrayInputStream, IOException}
import java.util.concurrent.CountDownLatch
import java.util.concurrent.atomic.AtomicInteger

import scala.util.Try

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json

/**
 * Tests a JVM that can start no thread more: nothing throws an OutOfMemoryError, which would end an executor. Run it
 * with large stacks and a limit of the address space, which few stacks fill.
 */
object FailedStarts {
  private val most = 200

  private def expect(condition: Boolean, failure: => String): Unit = if (!condition) throw new AssertionError(failure)

  def main(arguments: Array[String]): Unit = {
    Supervised.report("The log is ready", new OutOfMemoryError("of a test"))
    val polls = new AtomicInteger
    val isDone = new CountDownLatch(1)
    val events = new AgentEvents("events", () => isDone.getCount > 0,
      (_, _) => {
        polls.incrementAndGet()
        Thread.sleep(5)
        Json.obj("events" -> Json.array(Seq.empty))
      },
      _ => ())
    val go = new CountDownLatch(1)
    val taken = Iterator.continually(Supervised.start("taken")(go.await())).take(most).takeWhile(_ != null).toList
    expect(taken.size < most, s"${taken.size} threads were started: the limit is too high for this test")
    refusal("a thread")(Supervised.startOrFail("one more")(()))
    refusal("the log of an agent")(new AgentLog(1).follow(new ByteArrayInputStream(Array.empty), "log"))
    refusal("a call that is bounded in time")(Watchdog.bounded(() => (), 60000)(()))
    val spans = Try(FileCalls.together(Seq(() => 1L, () => 1L)))
    expect(spans.failed.toOption.exists(_.isInstanceOf[IOException]), s"spans of files: $spans")
    events.ensureRunning()
    expect(polls.get == 0, "a thread was started for events")
    go.countDown()
    taken.foreach(_.join())
    val untilNs = System.nanoTime + 60000000000L
    while (polls.get == 0) {
      events.ensureRunning()
      expect(System.nanoTime < untilNs, "the thread for events is not started once there is room for it")
      Thread.sleep(5)
    }
    isDone.countDown()
    println("every failed start is told")
  }

  private def refusal(name: String)(start: => Unit): Unit = Try(start).failed.toOption match {
    case Some(e: AgentException) => expect(e.kind == "busy", s"$name fails with ${e.kind}")
    case other => throw new AssertionError(s"$name: $other")
  }
}
