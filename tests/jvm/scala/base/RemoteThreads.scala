package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.util.concurrent.{CountDownLatch, Executor, TimeUnit}
import java.util.concurrent.atomic.AtomicInteger

/** Missing blocks are fetched where threads cannot be started, and none is under way when the caller goes on. */
object RemoteThreads {
  private val parts = 5

  def main(arguments: Array[String]): Unit = {
    for (started <- 0 until parts) {
      val (begun, ended) = (new AtomicInteger, new AtomicInteger)
      val released = new CountDownLatch(1)
      val work = Seq.tabulate(parts) { number => () =>
        begun.incrementAndGet()
        if (number < started) released.await(20, TimeUnit.SECONDS) else if (number == parts - 1) released.countDown()
        ended.incrementAndGet()
        ()
      }
      RemoteBlocks.atOnce(work, machineWith(started))
      require(begun.get == parts && ended.get == parts,
        s"$begun parts were begun and $ended ended, with $started threads")
    }
    println("all parts are done without threads")
  }

  private def machineWith(threads: Int): Executor = {
    val left = new AtomicInteger(threads)
    task => {
      if (left.getAndDecrement() <= 0) throw new OutOfMemoryError("unable to create native thread")
      new Thread(task).start()
    }
  }
}
