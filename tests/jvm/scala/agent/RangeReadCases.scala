package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.{File, IOException}
import java.net.URI
import java.nio.file.Files
import java.util.concurrent.atomic.AtomicInteger

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
      test.reportsFailures()
      giveWay()
      measureSpeed()
      println("ranges are read")
    } finally TestFiles.delete(directory)
  }

  /** Downloads wait while a batch waits for a request, and go on when that ends or takes long. */
  private def giveWay(): Unit = {
    val transfers = new BulkTransfers
    transfers.giveWay()
    val passed = new AtomicInteger
    @volatile var waiting = true
    val download = new Thread(() =>
      while (waiting) {
        transfers.giveWay()
        passed.incrementAndGet()
      })
    BulkTransfers.givingWay {
      try {
        download.start()
        while (download.getState != Thread.State.TIMED_WAITING) Thread.sleep(1)
        while (passed.get == 0) Thread.sleep(1)
      } finally waiting = false
    }
    download.join()
  }

  private def measureSpeed(): Unit = {
    val transfers = new BulkTransfers
    val bytes = 4L << 20
    expect(transfers.bytesPerSecond.contains(0L), "something comes without a download")
    val begun = System.nanoTime
    transfers.download {
      expect(transfers.bytesPerSecond.isEmpty, "a speed is known before anything was copied")
      Thread.sleep(200)
      transfers.copied(bytes)
      val alone = transfers.bytesPerSecond.get
      expect(alone > 0 && alone <= 5 * bytes, s"$bytes bytes in at least 200 ms are $alone a second")
      val givenWay = BulkTransfers.givingWay {
        val since = System.nanoTime
        Thread.sleep(500)
        System.nanoTime - since
      }
      transfers.copied(0)
      val after = transfers.bytesPerSecond.get
      val least = bytes * 1e9 / (System.nanoTime - begun - givenWay)
      expect(after >= least.toLong, s"the time of giving way counts: $after bytes a second, $least without it")
    }
    while (!transfers.bytesPerSecond.contains(0L)) Thread.sleep(10) // nothing comes any more
    transfers.download(expect(transfers.bytesPerSecond.isEmpty, "the speed of earlier downloads counts"))
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
        in.read(position, to, at, length)
      }
      override def seek(position: Long): Unit = in.seek(position)
      override def getPos: Long = in.getPos
      override def seekToNewSource(position: Long): Boolean = false
      override def hasCapability(capability: String): Boolean =
        CountedFiles.shared && capability == StreamCapabilities.PREADBYTEBUFFER
      override def close(): Unit = {
        CountedFiles.open.decrementAndGet()
        in.close()
      }
      private def expectShared(): Unit =
        if (!CountedFiles.shared) throw new AssertionError("a stream is read by several")
    })
  }
}

object CountedFiles {
  @volatile var shared = true
  val opened, open = new AtomicInteger
}
