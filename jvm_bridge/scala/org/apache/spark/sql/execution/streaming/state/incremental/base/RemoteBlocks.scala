package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.nio.channels.ClosedByInterruptException
import java.util.concurrent.{CountDownLatch, Executor, ThreadPoolExecutor}
import java.util.concurrent.atomic.AtomicReference

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.incremental.sst.SstTable
import org.apache.spark.util.ThreadUtils

/**
 * Data blocks of sparse tables that look-ups will read. They are fetched to the disk several at a time, where the look-ups
 * would fetch one after the other. One thread.
 */
private[base] final class RemoteBlocks {
  private val wanted = mutable.LinkedHashMap.empty[SstTable, mutable.TreeSet[Int]]

  /** Adds a block that will be read, unless it is verified. */
  def add(table: SstTable, block: Int): Unit =
    if (block < table.blocks && !table.isVerified(block)) wanted.getOrElseUpdate(table,
      mutable.TreeSet.empty[Int]) += block

  /**
   * Fetches and verifies the blocks, if it takes more than one request.
   *
   * @return the number of blocks
   * @throws java.io.IOException as the read of a block does; ClosedByInterruptException if the thread is interrupted
   */
  def fetch(): Int = {
    val requests = wanted.toSeq.flatMap { case (table, blocks) => together(table, blocks).map(table -> _) }
    if (requests.size < 2) 0
    else {
      RemoteBlocks.atOnce(requests.map { case (table, blocks) =>
        () => blocks.foreach(block => table.content(block, table.block(block), null, 0))
      })
      wanted.valuesIterator.map(_.size).sum
    }
  }

  /** Groups blocks by requests: a request for the first block of a group brings the others. */
  private def together(table: SstTable, blocks: Iterable[Int]): Seq[Seq[Int]] = {
    val groups = mutable.ArrayBuffer.empty[mutable.ArrayBuffer[Int]]
    var end = -1L
    blocks.foreach { block =>
      val handle = table.block(block)
      if (handle.offset + handle.bytes >= end) {
        groups += mutable.ArrayBuffer.empty[Int]
        end = handle.offset + SstTable.fetchedBytes
      }
      groups.last += block
    }
    groups.map(_.toSeq).toSeq
  }
}

private[base] object RemoteBlocks {
  private val maxRequests = 16

  /** The threads of all stores of the executor. */
  private lazy val threads: ThreadPoolExecutor = ThreadUtils.newDaemonCachedThreadPool("state-store-remote-blocks",
    maxRequests)

  /**
   * Runs all parts of some work; after the first failure no further part begins. When this returns no part runs, so that
   * the caller may close tables. The caller's thread runs a part for which no thread can be started.
   */
  private[base] def atOnce(work: Seq[() => Unit], executor: Executor = threads): Unit = {
    val failure = new AtomicReference[Throwable]
    val left = new CountDownLatch(work.size)
    work.foreach { part =>
      val task: Runnable = () =>
        try if (failure.get == null) part()
        catch { case e: Throwable => failure.compareAndSet(null, e) }
        finally left.countDown()
      try executor.execute(task)
      catch { case _: OutOfMemoryError => task.run() } // "unable to create native thread"
    }
    var interrupted = false
    while (left.getCount > 0) {
      try left.await()
      catch {
        case _: InterruptedException =>
          interrupted = true
          failure.compareAndSet(null, new ClosedByInterruptException)
      }
    }
    if (interrupted) Thread.currentThread.interrupt()
    Option(failure.get).foreach(throw _)
  }
}
