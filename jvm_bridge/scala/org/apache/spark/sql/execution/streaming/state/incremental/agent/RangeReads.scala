package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.util.concurrent.ConcurrentHashMap

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.hadoop.fs.{FSDataInputStream, StreamCapabilities}

/**
 * Reads ranges of the files of one store into memory. Ranges that lie close together come with one request, and many
 * requests run at a time. Downloads in the background give way meanwhile. One thread.
 *
 * If streams of the storage can be read by several threads (HDFS), each file is opened once. Otherwise a stream is opened
 * for each request, which on object stores costs nothing.
 *
 * @param files opens files by their paths below the root, to be read up to an offset
 */
private[incremental] final class RangeReads private[agent] (files: StoredFiles) extends AutoCloseable {
  import RangeReads._

  private val streams = new ConcurrentHashMap[String, FSDataInputStream]

  /**
   * Reads ranges.
   *
   * @param ranges path below the root, offset and length of each
   * @return their bytes, in the same order; zeros where a file ends before
   * @throws java.io.IOException if storage fails
   */
  def read(ranges: Seq[(String, Long, Int)]): Seq[Array[Byte]] = BulkTransfers.givingWay(readAll(ranges.toIndexedSeq))

  private def readAll(wanted: IndexedSeq[(String, Long, Int)]): Seq[Array[Byte]] = {
    val found = new Array[Array[Byte]](wanted.size)
    val isShared = files.hasSharedStreams || wanted.headOption.exists(range => tryShared(range._1))
    if (isShared) {
      val others = wanted.map(_._1).distinct.filterNot(path => streams.containsKey(path))
      FileCalls.together(others.map(path => () => opened(path)))
    }
    val requests = if (isShared) spansOf(wanted, SharedGapBytes, SharedSpanBytes) else spansOf(wanted)
    FileCalls.together(requests.map { numbers => () =>
      if (isShared) readShared(wanted, numbers, found) else readAlone(wanted, numbers, found)
    })
    found.toSeq
  }

  private def opened(path: String): Long = {
    streams.put(path, files.open(path))
    0
  }

  /** Opens a file, and keeps its stream if several threads can read it. */
  private def tryShared(path: String): Boolean = files.mayShareStreams && {
    val in = files.open(path)
    files.noteShared(in.hasCapability(StreamCapabilities.PREADBYTEBUFFER))
    if (files.hasSharedStreams) streams.put(path, in) else in.close()
    files.hasSharedStreams
  }

  private def readShared(ranges: IndexedSeq[(String, Long, Int)], numbers: IndexedSeq[Int],
      found: Array[Array[Byte]]): Long = {
    val (path, start, _) = ranges(numbers.head)
    val (_, last, length) = ranges(numbers.last)
    val in = streams.get(path)
    val bytes = new Array[Byte](Math.toIntExact(last + length - start))
    var read = 0
    var count = 0
    while (read < bytes.length && count >= 0) {
      count = in.read(start + read, bytes, read, bytes.length - read)
      read += math.max(count, 0)
    }
    numbers.foreach { number =>
      val (_, offset, length) = ranges(number)
      val from = (offset - start).toInt
      found(number) = if (length == bytes.length) bytes else java.util.Arrays.copyOfRange(bytes, from, from + length)
    }
    read
  }

  private def readAlone(ranges: IndexedSeq[(String, Long, Int)], numbers: IndexedSeq[Int],
      found: Array[Array[Byte]]): Long = {
    val pieces = numbers.map { number =>
      val (_, offset, length) = ranges(number)
      found(number) = new Array[Byte](length)
      (offset, length.toLong)
    }
    files.copy(ranges(numbers.head)._1, pieces) { (piece, bytes, offset) =>
      bytes.get(found(numbers(piece)), (offset - pieces(piece)._1).toInt, bytes.remaining)
      ()
    }
  }

  /** Bytes of whole files that come in a second while nothing is read ahead; None if that is not known. */
  def bulkBytesPerSecond: Option[Long] = files.bulk.bytesPerSecond

  /** Has downloads in the background give way to the body. */
  def first[A](body: => A): A = BulkTransfers.givingWay(body)

  /** Closes the files. May be called repeatedly. */
  def close(): Unit = {
    streams.values.forEach { in =>
      try in.close()
      catch { case NonFatal(_) => () } // it was only read
    }
    streams.clear()
  }
}

private[agent] object RangeReads {

  /** Bytes between two ranges that are read rather than skipped: they take less time than another request. */
  private val GapBytes = 128 << 10

  /** Bytes from which on a request takes no further range, so that many are read by several threads. */
  private val SpanBytes = 2 << 20

  /** The same for streams that are open, a request of which takes less time, and comes into memory as a whole. */
  private val SharedGapBytes = 48 << 10
  private val SharedSpanBytes = 256 << 10

  /** Divides ranges, given by path, offset and length, among requests: their numbers, in order. */
  def spansOf(
      ranges: IndexedSeq[(String, Long, Int)],
      gapBytes: Int = GapBytes,
      spanBytes: Int = SpanBytes): Seq[IndexedSeq[Int]] = {
    val spans = mutable.ArrayBuffer.empty[mutable.ArrayBuffer[Int]]
    ranges.indices.sortBy(number => (ranges(number)._1, ranges(number)._2)).foreach { number =>
      val (path, offset, length) = ranges(number)
      val joins = spans.nonEmpty && {
        val (before, start, _) = ranges(spans.last.head)
        val (_, last, bytes) = ranges(spans.last.last)
        path == before && offset - (last + bytes) <= gapBytes && offset + length - start <= spanBytes
      }
      if (!joins) spans += mutable.ArrayBuffer.empty[Int]
      spans.last += number
    }
    spans.map(_.toIndexedSeq).toSeq
  }
}
