package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.File
import java.nio.file.Files
import java.util.concurrent.atomic.AtomicReference

import org.apache.spark.sql.execution.streaming.state.incremental.memory.StoreMemory

/**
 * Several stores, a thread each, in one budget that none of them fits into: each takes back what the others have in
 * memory, while they read it. Arguments: seed, stores, steps of each.
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
      if (memory.usedBytes != 0) throw new AssertionError(s"${memory.usedBytes} bytes stay taken after the stores are closed")
      walks.foreach(walk => println(walk.summary))
    } finally TestFiles.delete(directory)
  }

  private def run(walks: Seq[StateWalk], steps: Int): Unit = {
    val failure = new AtomicReference[Throwable]
    val threads = walks.zipWithIndex.map { case (walk, i) => new Thread(() => walk.run(steps), s"store-$i") }
    threads.foreach { thread =>
      thread.setUncaughtExceptionHandler((_, e) => failure.compareAndSet(null, e))
      thread.start()
    }
    threads.foreach(_.join())
    if (failure.get != null) throw failure.get
  }
}
