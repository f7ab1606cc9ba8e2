package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.util.concurrent.TimeUnit.{MILLISECONDS, SECONDS}

/**
 * Downloads of one store in the background, which give way to requests that a batch of any store of this JVM waits for.
 * Any number of threads.
 */
private[agent] final class BulkTransfers {
  import BulkTransfers._

  private var running = 0
  private var startedNanos = 0L
  private var lastNanos = 0L
  private var bytes = 0L

  /** Runs a download, which notes what it copies. */
  def download[A](body: BulkDownload => A): A = {
    val download = new Download
    download.giveWay()
    begin(downloadNanos())
    try body(download)
    finally end(downloadNanos())
  }

  private final class Download extends BulkDownload {
    private var leftNanos = maxWaitNanos

    /** True if the bytes that come next were asked for while there was a request to give way to. */
    private var isBeside = false

    def giveWay(): Unit = BulkTransfers.synchronized {
      while (urgent > 0 && leftNanos > 0) {
        val begunNanos = System.nanoTime
        BulkTransfers.wait(leftNanos / nanosOfMilli + 1)
        leftNanos -= System.nanoTime - begunNanos
      }
      isBeside = urgent > 0
    }

    def copied(bytes: Long): Unit = {
      noteCopied(if (isBeside) 0 else bytes) // the clock of downloads stood still
      giveWay()
    }
  }

  private def begin(now: Long): Unit = synchronized {
    if (bytes == 0 || running == 0 && now - lastNanos > maxPauseNanos) {
      startedNanos = now
      bytes = 0
    }
    lastNanos = now
    running += 1
  }

  private def end(now: Long): Unit = synchronized {
    lastNanos = now
    running -= 1
  }

  private def noteCopied(count: Long): Unit = {
    val now = downloadNanos()
    synchronized {
      lastNanos = now
      bytes += count
    }
  }

  /**
   * Returns how many bytes of the store have come in a second lately, while they gave way to nothing: 0 if there are no
   * downloads; None if that is not known yet.
   */
  def bytesPerSecond: Option[Long] = {
    val now = downloadNanos()
    synchronized {
      val nanos = lastNanos - startedNanos
      if (running == 0 && (bytes == 0 || now - lastNanos > maxPauseNanos)) Some(0)
      else Option.when(nanos >= leastNanos && bytes >= leastBytes)((bytes.toDouble * SECONDS.toNanos(1) / nanos).toLong)
    }
  }
}

/** A download in the background, of one file or of a part of it. One thread. */
private[agent] trait BulkDownload {

  /**
   * Notes that some bytes have come. Then waits while there are requests to give way to, but for a second in all in a
   * download: downloads go on, however many batches there are.
   */
  def copied(bytes: Long): Unit
}

private[agent] object BulkTransfers {
  private val nanosOfMilli = MILLISECONDS.toNanos(1)

  /** Time for which a download gives way. */
  private val maxWaitNanos = SECONDS.toNanos(1)

  /** Time without a download after which no more is expected: a limit of their speed makes shorter pauses. */
  private val maxPauseNanos = SECONDS.toNanos(3)

  /** A speed that was measured with less tells nothing. */
  private val leastNanos = MILLISECONDS.toNanos(100)
  private val leastBytes = 1L << 20

  private var urgent = 0
  private var urgentSinceNanos = 0L
  private var urgentNanos = 0L

  /** Makes requests that a batch waits for. */
  def givingWay[A](body: => A): A = {
    begin()
    try body
    finally end()
  }

  private def begin(): Unit = synchronized {
    if (urgent == 0) urgentSinceNanos = System.nanoTime
    urgent += 1
  }

  private def end(): Unit = synchronized {
    urgent -= 1
    if (urgent == 0) {
      urgentNanos += System.nanoTime - urgentSinceNanos
      notifyAll()
    }
  }

  /** Returns a time that stands still while downloads give way. */
  private def downloadNanos(): Long = synchronized {
    (if (urgent > 0) urgentSinceNanos else System.nanoTime) - urgentNanos
  }
}
