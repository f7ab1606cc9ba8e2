package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.{File, IOException}
import java.lang.management.ManagementFactory
import java.net.URI
import java.nio.file.Files
import java.util.concurrent.atomic.{AtomicInteger, AtomicReference}

import scala.jdk.CollectionConverters._
import scala.util.{Random, Try}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataInputStream, FSInputStream, Path, RawLocalFileSystem, StreamCapabilities}

import org.apache.spark.sql.execution.streaming.state.incremental.TestFiles

/** Ranges of files that are read into memory, by streams that are shared and by others; downloads that give way. */
object RangeReadCases {
  private val conf = new Configuration
  conf.set("fs.counted.impl", classOf[CountedFiles].getName)
  conf.set("fs.counted.impl.disable.cache", "true")

  private def expect(condition: Boolean, failure: => String): Unit = if (!condition) throw new AssertionError(failure)

  def main(arguments: Array[String]): Unit = {
    val directory = Files.createTempDirectory("range-reads").toFile
    try {
      val test = new RangeReadCases(directory)
      test.readsRanges()
      test.sharesStreams()
      test.closesStreams()
      test.closesStreamsWhoseClientFails()
      test.reportsFailures()
      giveWay()
      giveWayToLookAheads()
      endToGiveWay()
      measureSpeed()
      reuseThreads()
      println("ranges are read")
    } finally TestFiles.delete(directory)
  }

  /** A download waits while a batch waits for a request. If that takes long, it goes on, and waits no more. */
  private def giveWay(): Unit = {
    val transfers = new BulkTransfers
    val waits = new AtomicReference[(Long, Long)]
    BulkTransfers.givingWay {
      val download = started {
        val before = waited
        transfers.download { bulk =>
          val first = waited
          for (_ <- 1 to 3) bulk.copied(256 << 10)
          waits.set((first - before, waited - first))
        }
      }
      download.join(60000)
    }
    val found = Option(waits.get)
    expect(found.exists { case (first, later) => first > 0 && later == 0 }, s"at first and later it waited: $found")
  }

  /** Downloads wait for a look-ahead longer than a second, but all of them together only as long as they may. */
  private def giveWayToLookAheads(): Unit = {
    val waits = new AtomicReference(Seq.empty[Long])
    def twice(transfers: BulkTransfers): Thread = started {
      waits.set(for (_ <- 1 to 2) yield transfers.download { bulk =>
        bulk.copied(256 << 10)
        waited
      })
    }
    val waiting = BulkTransfers.givingWayAhead {
      val downloads = twice(new BulkTransfers)
      downloads.join(3000)
      expect(downloads.isAlive, "downloads went on before the look-ahead had ended")
      downloads
    }
    waiting.join(60000)
    expect(!waiting.isAlive, "downloads did not go on after the look-ahead")
    BulkTransfers.givingWayAhead {
      val downloads = twice(new BulkTransfers(maxAheadNanos = 100000000))
      downloads.join(60000)
      expect(!downloads.isAlive, "a look-ahead without an end stops all downloads")
    }
    val Seq(first, both) = waits.get
    expect(both - first < first, s"the second download, too, gave way to the look-ahead: $first waits, then $both")
  }

  /** The time to give way is over between two looks at it, as after a pause of the JVM. */
  private def endToGiveWay(): Unit = {
    val looks = new AtomicInteger
    val transfers = new BulkTransfers(if (looks.getAndIncrement() == 0) 10000000000L else -10000000000L)
    val failure = new AtomicReference[Option[Throwable]]
    BulkTransfers.givingWayAhead {
      val download = started(failure.set(Try(transfers.download(_ => ())).failed.toOption))
      while (download.isAlive && looks.get == 0) Thread.onSpinWait()
      BulkTransfers.givingWayAhead(())
      BulkTransfers.synchronized(BulkTransfers.notifyAll())
      download.join(60000)
    }
    expect(Option(failure.get).exists(_.isEmpty), s"the download did not go on: ${failure.get}")
  }

  private def started(body: => Unit): Thread = {
    val thread = new Thread(() => body)
    thread.setDaemon(true)
    thread.start()
    thread
  }

  /** Returns how often this thread has waited. */
  private def waited: Long =
    ManagementFactory.getThreadMXBean.getThreadInfo(Thread.currentThread.getId).getWaitedCount

  /** The threads that are there take work before others are started, so that those without work end. */
  private def reuseThreads(): Unit = {
    for (_ <- 1 to 100) expect(FileCalls.together(Seq(() => 1L, () => 2L)) == Seq(1L, 2L), "results are others")
    val threads = Thread.getAllStackTraces.keySet.asScala.count(_.getName.startsWith("state-store-spans"))
    expect(threads < 50, s"$threads threads were started for two pieces of work at a time")
  }

  private def measureSpeed(): Unit = {
    val transfers = new BulkTransfers
    val bytes = 4L << 20
    expect(transfers.bytesPerSecond.contains(0L), "something comes without a download")
    val begun = System.nanoTime
    transfers.download { bulk =>
      expect(transfers.bytesPerSecond.isEmpty, "a speed is known before anything was copied")
      Thread.sleep(200)
      bulk.copied(bytes)
      val alone = transfers.bytesPerSecond.get
      expect(alone > 0 && alone <= 5 * bytes, s"$bytes bytes in at least 200 ms are $alone a second")
      val givenWay = BulkTransfers.givingWay {
        val since = System.nanoTime
        bulk.copied(0) // waits for a second, and no longer
        bulk.copied(1000 * bytes)
        System.nanoTime - since
      }
      bulk.copied(0)
      val after = transfers.bytesPerSecond.get
      val least = bytes * 1e9 / (System.nanoTime - begun - givenWay)
      expect(after >= least.toLong, s"the time of giving way counts: $after bytes a second, $least without it")
      expect(after <= 5 * bytes, s"what came while the clock stood still counts: $after bytes a second")
    }
    while (!transfers.bytesPerSecond.contains(0L)) Thread.sleep(10) // nothing comes any more
    transfers.download(_ => expect(transfers.bytesPerSecond.isEmpty, "the speed of earlier downloads counts"))
  }
}

final class RangeReadCases(directory: File) {
  import RangeReadCases._

  private val content = Map("a" -> bytes(1), "b" -> bytes(2))
  content.foreach { case (name, bytes) => Files.write(new File(directory, name).toPath, bytes) }

  private def bytes(seed: Int): Array[Byte] = {
    val made = new Array[Byte](1 << 20)
    new Random(seed).nextBytes(made)
    made
  }

  private val ranges = for {
    name <- Seq("b", "a")
    offset <- Seq(900000L, 0L, 300L, 200000L, 1L << 19)
  } yield (name, offset, 300)

  /** Passes a reader to a function; returns the number of streams that were opened. */
  private def opensOf(shared: Boolean)(use: RangeReads => Unit): Int = {
    CountedFiles.opened.set(0)
    CountedFiles.shared = shared
    val calls = new FileCalls(new Path(s"counted://$directory"), conf)
    val reads = calls.rangeReads()
    try use(reads)
    finally reads.close()
    CountedFiles.opened.get
  }

  private def check(reads: RangeReads): Unit = ranges.zip(reads.read(ranges)).foreach {
    case ((name, offset, length), found) =>
      expect(java.util.Arrays.equals(found, content(name).slice(offset.toInt, offset.toInt + length)),
        s"$length bytes at $offset of $name are others")
  }

  def readsRanges(): Unit = for (shared <- Seq(true, false)) opensOf(shared) { reads =>
    check(reads)
    expect(reads.read(Nil).isEmpty, "no ranges have bytes")
    val cut = reads.read(Seq(("a", (1L << 20) - 10, 20))).head
    expect(cut.take(10).toSeq == content("a").takeRight(10).toSeq && cut.drop(10).forall(_ == 0),
      "the bytes after the end of a file are not zeros")
  }

  def sharesStreams(): Unit = {
    val shared = opensOf(shared = true) { reads =>
      check(reads)
      check(reads)
    }
    expect(shared == 2, s"two files were opened $shared times")
    val alone = opensOf(shared = false)(check)
    expect(alone > 2, s"a stream that only one thread may read was opened $alone times")
  }

  def closesStreams(): Unit = for (shared <- Seq(true, false)) {
    opensOf(shared)(check)
    expect(CountedFiles.open.get == 0, s"${CountedFiles.open} streams stay open, shared: $shared")
  }

  /** Clients of storage also throw unchecked exceptions. */
  def closesStreamsWhoseClientFails(): Unit =
    try opensOf(shared = true) { reads =>
        check(reads)
        CountedFiles.fail = true
      }
    finally {
      CountedFiles.fail = false
      expect(CountedFiles.open.get == 0, s"${CountedFiles.open} streams stay open after one failed to close")
    }

  def reportsFailures(): Unit = for (shared <- Seq(true, false)) opensOf(shared) { reads =>
    check(reads)
    val failed = Try(reads.read(Seq(("a", 0L, 10), ("absent", 0L, 10))))
    expect(failed.failed.toOption.exists(_.isInstanceOf[IOException]), s"a file that is absent gives $failed")
    check(reads)
  }
}

/** Local files that count their streams, which several threads may read if they say so. */
final class CountedFiles extends RawLocalFileSystem {
  override def getUri: URI = URI.create("counted:///")

  override def open(path: Path, bufferBytes: Int): FSDataInputStream = {
    val in = super.open(path, bufferBytes)
    CountedFiles.opened.incrementAndGet()
    CountedFiles.open.incrementAndGet()
    new FSDataInputStream(new FSInputStream with StreamCapabilities {
      override def read(): Int = in.read()
      override def read(to: Array[Byte], at: Int, length: Int): Int = in.read(to, at, length)
      override def read(position: Long, to: Array[Byte], at: Int, length: Int): Int = {
        expectShared()
        in.read(position, to, at, math.min(length, CountedFiles.readAtOnce))
      }
      override def seek(position: Long): Unit = in.seek(position)
      override def getPos: Long = in.getPos
      override def seekToNewSource(position: Long): Boolean = false
      override def hasCapability(capability: String): Boolean =
        CountedFiles.shared && capability == StreamCapabilities.PREADBYTEBUFFER
      override def close(): Unit = {
        CountedFiles.open.decrementAndGet()
        in.close()
        if (CountedFiles.fail) throw new IllegalStateException("the client is shut down")
      }
      private def expectShared(): Unit =
        if (!CountedFiles.shared) throw new AssertionError("a stream is read by several")
    })
  }
}

object CountedFiles {
  @volatile var shared = true
  @volatile var fail = false

  /** The most bytes that a read at a position brings: clients end it where a block or a packet ends. */
  val readAtOnce = 200
  val opened, open = new AtomicInteger
}
