package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.{File, IOException}
import java.nio.channels.ClosedByInterruptException

import scala.util.{Failure, Try}

import org.apache.spark.sql.execution.streaming.state.incremental.sst.DamagedSstException

/** Look-ups of announced keys while the files of the base come in the background. */
final class RowsBeforeFiles(directory: File) extends SparseBases(directory) {
  def run(): Unit = {
    readsRowsBeforeTheFiles()
    leavesDenseKeysToTheFiles()
    keepsWhatIsWantedAgain()
    reportsFailures()
    endsWhenItIsInterrupted()
  }

  /** Keys so far from each other that their blocks are there sooner than the files. */
  private val few = Seq(1, 6001, 11001)

  /** Keys of files that come in the background: their blocks come to memory, and what is there is not fetched. */
  private def readsRowsBeforeTheFiles(): Unit = {
    var asked = Vector.empty[Seq[(String, Long, Int)]]
    def read(ranges: Seq[(String, Long, Int)]): Seq[Array[Byte]] = {
      asked :+= ranges
      remote.read(ranges)
    }
    withReader(refused, read = read) { (base, reader) =>
      expect(base.isSparse, "a sparse base does not say so")
      reader.expect(few.map(key))
      expect(asked.size == 1 && asked.head.size == asked.head.distinct.size && asked.head.size >= few.size,
        s"the blocks of ${few.size} keys are read by $asked")
      expect(reader.blocksAhead == asked.head.size, s"${reader.blocksAhead} blocks are counted")
      few.foreach(check(reader, _))
      reader.expect(few.map(key))
      expect(asked.size == 1, "rows that were read ahead are read again")
      asked.head.foreach { case (name, offset, length) => remote.fetch(name, offset, length) }
      val another = base.reader()
      try {
        another.expect(few.map(key))
        few.foreach(check(another, _))
      } finally another.close()
      expect(asked.size == 1, "blocks are read that have come to the disk")
      expect(!base.damaged, "blocks that are not there are taken for damaged")
    }
  }

  /** Blocks that a batch wants again come to the disk, if it has room, and stay, if the files do not come. */
  private def keepsWhatIsWantedAgain(): Unit = {
    var (asked, brought, isFull) = (0, 0, true)
    def fetch(ranges: Seq[(String, Long, Long)]): Unit = {
      if (isFull) throw new RemoteRowsException("the disk is full", null)
      brought += ranges.size
      remote.fetchAll(ranges)
    }
    val stored = new StoredRanges {
      def read(ranges: Seq[(String, Long, Int)]): Seq[Array[Byte]] = {
        asked += ranges.size
        remote.read(ranges)
      }
      override def bulkBytesPerSecond: Option[Long] = Some(0)
    }
    withReader((name, at, length) => fetch(Seq((name, at, length))), fetchAll = fetch,
      stored = () => stored) { (base, _) =>
      def batch(): (Int, Int) = {
        val reader = base.reader()
        try {
          reader.expect(some.map(key))
          some.foreach(check(reader, _))
        } finally reader.close()
        (asked, brought)
      }
      val first = batch()
      expect(first._1 > 20 && first._2 == 0, s"blocks come to memory and to the disk: $first")
      val second = batch()
      expect(second._1 > first._1 * 3 / 2 && second._2 == 0,
        s"blocks that the disk has no room for: $second, $first before")
      isFull = false
      val third = batch()
      expect(third._1 == second._1 && third._2 > first._1 / 2, s"blocks that are wanted again: $third, $second before")
      expect(batch() == third, "blocks are read again that are on the disk")
    }
  }

  /** If the files are there as soon as the blocks, these are left to the files. */
  private def leavesDenseKeysToTheFiles(): Unit =
    withReader(remote.fetch(_, _, _), read = _ => throw new AssertionError("blocks are read ahead")) { (_, reader) =>
      reader.expect(some.map(key))
      some.foreach(check(reader, _))
    }

  /** Storage that fails and damaged bytes are shown by the fetch of a block, if that does not help. */
  private def reportsFailures(): Unit = {
    val broken = Seq[Seq[(String, Long, Int)] => Seq[Array[Byte]]](
      _ => throw new IOException("it is down"),
      ranges => remote.read(ranges).map(_.map(byte => (byte ^ 0x55).toByte)))
    for (read <- broken) {
      withReader(remote.fetch(_, _, _), read = read) { (base, reader) =>
        reader.expect(few.map(key))
        few.foreach(check(reader, _))
        expect(!base.damaged, "a failure past the disk is taken for damage of the files")
      }
      withReader((_, _, _) => throw new RemoteRowsException("it is down", null), read = read) { (base, reader) =>
        val failed = Try(reader.expect(few.map(key)))
        expect(failed.failed.toOption.exists(_.isInstanceOf[RemoteRowsException]),
          s"storage that is down gives $failed")
        expect(!base.damaged && damages == 0, "missing parts are taken for damaged")
      }
    }
    withReader((_, _, _) => throw new GoneRowsException("it is gone", null), read = broken.head) { (base, reader) =>
      val failed = Try(reader.expect(few.map(key)))
      expect(failed.failed.toOption.exists(_.isInstanceOf[GoneRowsException]), s"a file that is gone gives $failed")
      expect(base.isOver && !base.damaged && damages == 0, "a base whose file is gone is read on, or taken for damaged")
    }
    withReader((_, _, _) => (), read = broken.head) { (base, reader) =>
      val failed = Try(reader.expect(few.map(key)))
      expect(failed.failed.toOption.exists(_.isInstanceOf[DamagedSstException]), s"holes that stay give $failed")
      expect(base.damaged && damages == 1, "the base does not report the damage")
    }
  }

  /** An interrupt ends the call, as the caller expects it of a file, and the thread stays interrupted. */
  private def endsWhenItIsInterrupted(): Unit =
    withReader(refused, read = _ => throw new InterruptedException) { (base, reader) =>
      Try(reader.expect(few.map(key))) match {
        case Failure(_: ClosedByInterruptException) =>
        case found => throw new AssertionError(s"an interrupt ends with $found")
      }
      expect(Thread.interrupted(), "the interrupt is lost")
      expect(!base.damaged, "an interrupt is taken for damage")
    }
}
