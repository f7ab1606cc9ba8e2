package org.apache.spark.sql.execution.streaming.state.incremental.observed

import java.io.IOException
import java.util.concurrent.{Executor, LinkedBlockingQueue, TimeUnit}
import java.util.concurrent.atomic.AtomicInteger

import scala.jdk.CollectionConverters._

/**
 * Tests that no error of a report, `NonFatal` or not, reaches a query or ends the thread that sends reports, and that a
 * machine without threads delays reports and refuses requests.
 */
object ReportThreads {
  private val errors: Seq[() => Throwable] = Seq(
    () => new IOException("the connection broke"),
    () => new IllegalStateException("a defect"),
    () => new OutOfMemoryError("Java heap space"),
    () => new InternalError("a fault occurred in an unsafe memory access operation"),
    () => new StackOverflowError,
    () => new NoClassDefFoundError("missing"))

  def main(arguments: Array[String]): Unit = {
    errorsAreHarmless()
    reportsAreSentAfterErrors()
    aThreadIsStartedOnceThereIsOne()
    requestsAreRefusedWithoutThreads()
    println("reports go on")
  }

  private def errorsAreHarmless(): Unit = {
    errors.map(_()).foreach(e => require(Survivable.unapply(e).contains(e), s"$e would reach the query"))
    require(Survivable.unapply(new InterruptedException).isEmpty, "an interrupt is swallowed")
  }

  private def report(n: Int): Report =
    FullReport(StoreKey("run", 0, n, "default"), n, "request", None, already = false, None)

  private def reportsAreSentAfterErrors(): Unit = {
    val sent = new LinkedBlockingQueue[Thread]
    val failed = new AtomicInteger
    @volatile var wanted = true
    val queue = new ReportQueue(
      () => wanted,
      reports => {
        sent.add(Thread.currentThread)
        if (failed.get < errors.size) throw errors(failed.getAndIncrement())()
      },
      pauseMs = 1)
    val threads = (0 to errors.size).map { n =>
      queue.send(report(n))
      sent.poll(2, TimeUnit.MINUTES)
    }
    require(threads.head != null && threads.distinct.size == 1, s"an error has ended a thread: $threads")
    wanted = false
  }

  private def aThreadIsStartedOnceThereIsOne(): Unit = {
    val delivered = new LinkedBlockingQueue[Report]
    val tries = new AtomicInteger
    def start(run: () => Unit): Thread =
      if (tries.getAndIncrement() == 0) null
      else {
        val thread = new Thread(() => run())
        thread.setDaemon(true)
        thread.start()
        thread
      }
    @volatile var wanted = true
    val queue = new ReportQueue(() => wanted, reports => reports.foreach(delivered.add), start, retryMs = 0)
    queue.send(report(1))
    require(tries.get == 1 && delivered.isEmpty)
    queue.send(report(2))
    val both = Seq.fill(2)(delivered.poll(2, TimeUnit.MINUTES))
    require(both == Seq(report(1), report(2)), s"$both and ${delivered.asScala} were delivered")
    wanted = false
  }

  private def requestsAreRefusedWithoutThreads(): Unit = {
    val noThread: Executor = _ => throw new OutOfMemoryError("unable to create native thread")
    var failure: Option[Throwable] = None
    Reporter.inBackground(noThread)(())(e => failure = Some(e))
    require(failure.exists(_.isInstanceOf[OutOfMemoryError]), s"$failure")
    errors.map(_()).foreach { error =>
      failure = None
      Reporter.inBackground(_.run())(throw error)(e => failure = Some(e))
      require(failure.contains(error), s"$failure instead of $error")
    }
  }
}
