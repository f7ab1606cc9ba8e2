package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.IOException
import java.util.concurrent.{ConcurrentLinkedQueue, CountDownLatch, TimeUnit}
import java.util.concurrent.atomic.AtomicInteger

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json

/**
 * Tests that threads which live as long as the agent survive every error of a step, `NonFatal` or not: the thread for
 * events handles each event once and in order, and other threads repeat the step.
 */
object EventThreads {
  private val errors: Seq[() => Throwable] = Seq(
    () => new IOException("the connection broke"),
    () => new IllegalStateException("a defect"),
    () => new OutOfMemoryError("Java heap space"),
    () => new InternalError("a fault occurred in an unsafe memory access operation"),
    () => new StackOverflowError,
    () => new NoClassDefFoundError("missing"))

  def main(arguments: Array[String]): Unit = {
    eventsAreHandledOnce()
    stepsAreRepeated()
    connectionsAreAdded()
    nothingIsClosedLate()
    println("threads survive all errors")
  }

  private def expect(condition: Boolean, failure: => String): Unit = if (!condition) throw new AssertionError(failure)

  private def await(failure: String)(condition: => Boolean): Unit = {
    val untilNs = System.nanoTime + 60000000000L
    while (!condition) {
      expect(System.nanoTime < untilNs, failure)
      Thread.sleep(5)
    }
  }

  /** A thread that cannot be started is started later, whatever is asked for meanwhile. */
  private def connectionsAreAdded(): Unit = {
    val lent = new LentConnections
    var threads = 0
    def add(most: Int): Int = {
      lent.add {
        val isStarted = threads < most
        if (isStarted) threads += 1
        isStarted
      }
      threads
    }
    lent.want(4)
    expect(add(1) == 1, s"$threads threads were started")
    lent.want(4)
    lent.want(3)
    lent.want(6)
    expect(add(2) == 2 && add(100) == 6 && add(100) == 6, s"$threads threads of 6 were started")
    lent.lackAll()
    threads = 0
    expect(add(100) == 6, s"$threads threads of 6 were started for another agent")
  }

  /** A resource whose time is over when its body ends is closed by then: nobody uses it again. */
  private def nothingIsClosedLate(): Unit = {
    val isBegun = new CountDownLatch(1)
    val closes = new AtomicInteger
    val closed = new AtomicInteger
    val mayEnd = new CountDownLatch(1)
    def close(): Unit = {
      if (closes.getAndIncrement() == 0) {
        isBegun.countDown()
        mayEnd.await(60, TimeUnit.SECONDS)
      }
      closed.incrementAndGet()
    }
    Watchdog.bounded(() => close(), 1)(expect(isBegun.await(60, TimeUnit.SECONDS), "nothing is closed"))
    expect(closed.get == 1, "the resource is closed after its use")
    mayEnd.countDown()
    Watchdog.bounded(() => throw new AssertionError("closed in time"), 60000)(())
  }

  private def event(number: Long): ObjectNode = Json.obj("number" -> number, "event" -> "closed", "store" -> number)

  /** Lets every other poll fail, and every event in its turn; the agent repeats some events. */
  private def eventsAreHandledOnce(): Unit = {
    val polls = new AtomicInteger
    val handled = new ConcurrentLinkedQueue[Long]
    @volatile var alive = true
    @volatile var thread: Thread = null
    def call(request: ObjectNode, timeoutMs: Long): ObjectNode = {
      thread = Thread.currentThread
      val poll = polls.getAndIncrement()
      if (poll % 2 == 0) throw errors(poll / 2 % errors.size)()
      val after = request.path("after").asLong
      val first = math.max(1, after) // repeats the last event that was handled
      Json.obj("events" -> Json.array(first to math.min(after + 2, 2L * errors.size) map event))
    }
    def handle(event: AgentEvent): Unit = {
      handled.add(event.store)
      throw errors(event.store.toInt % errors.size)()
    }
    val events = new AgentEvents("events", () => alive, call, handle)
    events.ensureRunning()
    await("no thread polls")(thread != null)
    val firstThread = thread
    val wanted = 1L to 2L * errors.size
    await(s"the events ${handled.asScala.toSeq} of $wanted are handled")(
      handled.size >= wanted.size || !firstThread.isAlive)
    await("it is not polled again")(polls.get > 4 * errors.size || !firstThread.isAlive)
    expect(firstThread.isAlive && (thread eq firstThread), "an error has ended the thread")
    expect(handled.asScala.toSeq == wanted, s"the events ${handled.asScala.toSeq} are handled")
    alive = false
    firstThread.join(60000)
    expect(!firstThread.isAlive, "the thread lives on without its agent")
    alive = true
    events.ensureRunning()
    await("a thread that has ended is not started again")(thread ne firstThread)
    alive = false
  }

  private def stepsAreRepeated(): Unit = {
    val steps = new AtomicInteger
    val thread = Supervised.start("steps") {
      Supervised.repeat("A step of a test failed", steps.get < errors.size, 1)(throw errors(steps.getAndIncrement())())
    }
    thread.join(60000)
    expect(!thread.isAlive && steps.get == errors.size, s"a thread ends after step ${steps.get}")
  }
}
