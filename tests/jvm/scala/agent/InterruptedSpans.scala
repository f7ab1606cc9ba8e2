package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.util.concurrent.{CountDownLatch, TimeUnit}
import java.util.concurrent.atomic.AtomicInteger

import scala.util.{Failure, Try}

/** Tests that a thread which waits for many spans, and is interrupted, ends after all that write to local files. */
object InterruptedSpans {
  private val patienceS = 300L

  private def expect(condition: Boolean, failure: => String): Unit = if (!condition) throw new AssertionError(failure)

  def main(arguments: Array[String]): Unit = {
    val begun = new CountDownLatch(3)
    val go = new CountDownLatch(1)
    val ended = new AtomicInteger
    def span(): Long = {
      begun.countDown()
      go.await()
      ended.incrementAndGet().toLong
    }
    @volatile var outcome: Try[Seq[Long]] = null
    @volatile var endedBefore = -1
    val waiting = Supervised.start("waiting") {
      outcome =
        try Try(FileCalls.together(Seq.fill(3)(() => span())))
        catch { case e: InterruptedException => Failure(e) }
      endedBefore = ended.get
    }
    expect(begun.await(patienceS, TimeUnit.SECONDS), "the spans do not begin")
    waiting.interrupt()
    waiting.join(200) // is too short if it waits, as it has to
    waiting.interrupt()
    go.countDown()
    waiting.join(patienceS * 1000)
    expect(outcome != null && outcome.failed.toOption.exists(_.isInstanceOf[InterruptedException]),
      s"it ends: $outcome")
    expect(endedBefore == 3, s"$endedBefore of 3 spans had ended when the wait for them did")
    println("all spans end before the wait does")
  }
}
