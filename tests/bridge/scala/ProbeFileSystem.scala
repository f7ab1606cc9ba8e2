package org.apache.spark.sql.execution.streaming.state.incremental.probe

import java.io.IOException
import java.net.URI
import java.nio.file.{Files, Path => Local}
import java.util.concurrent.{CountDownLatch, TimeUnit}
import java.util.concurrent.atomic.AtomicInteger

import org.apache.hadoop.fs.{FSDataInputStream, FSDataOutputStream, FileStatus, Path, RawLocalFileSystem}
import org.apache.hadoop.util.Progressable

/** Local files under the scheme `probe`, which Spark reaches through Hadoop; told what to do on a call. */
class ProbeFileSystem extends RawLocalFileSystem {
  override def getScheme: String = "probe"
  override def getUri: URI = URI.create("probe:///")

  override def open(path: Path, bufferSize: Int): FSDataInputStream = {
    ProbeFileSystem.called("open")
    super.open(path, bufferSize)
  }

  override def create(
      path: Path, overwrite: Boolean, bufferSize: Int, replication: Short, blockSize: Long,
      progress: Progressable): FSDataOutputStream = {
    ProbeFileSystem.called("create")
    super.create(path, overwrite, bufferSize, replication, blockSize, progress)
  }

  override def rename(from: Path, to: Path): Boolean = {
    ProbeFileSystem.called("rename")
    super.rename(from, to)
  }

  override def listStatus(path: Path): Array[FileStatus] = {
    ProbeFileSystem.called("list")
    super.listStatus(path)
  }

  override def delete(path: Path, recursive: Boolean): Boolean = {
    ProbeFileSystem.called("delete")
    super.delete(path, recursive)
  }

  override def pathToFile(path: Path): java.io.File = super.pathToFile(new Path(path.toUri.getPath))
}

object ProbeFileSystem {
  private case class Order(operation: String, left: AtomicInteger, times: AtomicInteger, action: () => Unit)
  @volatile private var order: Option[Order] = None
  private val done = new AtomicInteger

  /** Does the action from the nth call of the operation ("any" for every kind) from now on, this many times. */
  def on(operation: String, nth: Int, times: Int)(action: => Unit): Unit =
    order = Some(Order(operation, new AtomicInteger(nth), new AtomicInteger(times), () => action))

  def fail(): Unit = throw new IOException("the probe refuses")

  /** Fails when a file is there. */
  def failOnceThere(file: Local): Unit = {
    val untilNs = System.nanoTime + TimeUnit.SECONDS.toNanos(60)
    while (!Files.exists(file) && System.nanoTime < untilNs) Thread.sleep(5)
    fail()
  }

  /** Waits until as many calls are here at once as the latch counts; throws if they do not come. */
  def meet(others: CountDownLatch): Unit = {
    others.countDown()
    if (!others.await(20, TimeUnit.SECONDS)) throw new IOException(s"${others.getCount} calls did not come")
  }

  /** The number of actions so far. */
  def actions: Int = done.get

  def called(operation: String): Unit = order.foreach { current =>
    val meant = current.operation == "any" || current.operation == operation
    if (meant && current.left.decrementAndGet() <= 0) {
      val left = current.times.getAndDecrement() // calls come from several threads at once
      if (left <= 1) order = None
      if (left > 0) {
        done.incrementAndGet()
        current.action()
      }
    }
  }
}
