package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.File
import java.nio.file.Files
import java.util.concurrent.atomic.AtomicReference

import org.apache.spark.sql.execution.streaming.state.incremental.memory.StoreMemory

/**
 * Several stores, a thread each, in one budget that is too small for any of them: each frees memory of the others while
 * they read it. Another thread asks for their memory use all the time, as Spark does for its metrics. Arguments: seed,
 * number of stores, steps of each.
 */
object SharedWalks {
  def main(arguments: Array[String]): Unit = {
    val Array(seed, stores, steps) = arguments.map(_.toInt)
    val memory = new StoreMemory(1L << 20, largestPieceBytes = 64L << 10)
    val directory = Files.createTempDirectory("shared-walks").toFile
    try {
      val walks = (0 until stores).map { i =>
        val own = new File(directory, s"store-$i")
        own.mkdir()
        new StateWalk(seed * 1000L + i, own, fixedBudget = 0, memory)
      }
      run(walks, steps)
      if (memory.usedBytes != 0)
        throw new AssertionError(s"${memory.usedBytes} bytes stay taken after the stores are closed")
      walks.foreach(walk => println(walk.summary))
    } finally TestFiles.delete(directory)
  }

  private def run(walks: Seq[StateWalk], steps: Int): Unit = {
    val failure = new AtomicReference[Throwable]
    val threads = walks.zipWithIndex.map { case (walk, i) => new Thread(() => walk.run(steps), s"store-$i") }
    val watcher = new Thread(() =>
      while (threads.exists(_.isAlive)) {
        walks.foreach(watch)
        Thread.sleep(1)
      })
    (threads :+ watcher).foreach { thread =>
      thread.setUncaughtExceptionHandler((_, e) => failure.compareAndSet(null, e))
      thread.start()
    }
    (threads :+ watcher).foreach(_.join())
    if (failure.get != null) throw failure.get
  }

  private def watch(walk: StateWalk): Unit = {
    val use = walk.memoryUse
    val parts = Seq(use.memtableBytes, use.recentBytes, use.indexBytes, use.baseBytes, use.spilledBytes)
    if (parts.exists(_ < 0)) throw new AssertionError(s"less than nothing is in use: $use")
  }
}
