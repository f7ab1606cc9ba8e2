package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.File
import java.nio.ByteBuffer

import scala.collection.immutable.TreeMap
import scala.util.Random

import org.apache.spark.sql.execution.streaming.state.incremental.base.{BaseDirectory, RestoredFiles, RestoredDelta}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.memory.StoreMemory
import org.apache.spark.sql.execution.streaming.state.incremental.transaction.{
  OrderedScan, StateConf, StoreVersions, Transaction
}

/** Cases that count the removed keys that scans pass: the keys of fired timers are passed once, not by every batch. */
object RemovedKeys {
  val cases: Seq[(String, File => Unit)] = Seq(
    "fired timers" -> (firedTimersArePassedOnce(_, below = 0)),
    "fired timers in a base" -> (firedTimersArePassedOnce(_, below = 1)),
    "fired timers in deltas" -> (firedTimersArePassedOnce(_, below = 4)),
    "a row that stays" -> aRowInFrontOfThemChangesNothing,
    "moved timers" -> removedRowsOfAPrefixAreNotPassed)

  private val timers = 12000
  private val fired = 500

  private def expect(condition: Boolean, message: => String): Unit = if (!condition) throw new AssertionError(message)

  private def key(at: Long): Array[Byte] = ByteBuffer.allocate(10).putShort(1).putLong(at).array
  private def version(n: Int): VersionId = if (n == 0) VersionId.empty else VersionId(n.toLong, Some(s"id$n"))

  private def open(directory: File): StoreVersions =
    new StoreVersions(new StoreMemory(64L << 20), StateConf(new File(directory, "spill")))

  private def commit(transaction: Transaction, delta: File): Unit = {
    val as = version(transaction.version.number.toInt + 1)
    transaction.writeDelta(delta, TestBases.meta(as, transaction.keys).getBytes("US-ASCII"))
    transaction.committed(as)
  }

  private def scan(transaction: Transaction): OrderedScan =
    transaction.scan(Array[Byte](0, 1), Array[Byte](0, 2), ordered = true).asInstanceOf[OrderedScan]

  private def at(scan: OrderedScan): Long = ByteBuffer.wrap(scan.key).getLong(2)

  /**
   * Each batch removes the first rows and adds others, some of them in front. A scan passes the keys that the batch
   * before removed, and not those of all batches.
   *
   * @param below number of batches after which all rows are in a base, with the changes of the last batches in deltas
   *   beside it
   */
  private def firedTimersArePassedOnce(directory: File, below: Int): Unit = {
    val random = new Random(3)
    val state = open(directory)
    val deltas = Seq.tabulate(24)(i => new File(directory, s"delta-$i.sst"))
    var rows = TreeMap.from((0 until timers).map(i => i * 10L -> ()))
    for (batch <- deltas.indices) {
      val transaction = state.tryBegin(version(batch), readOnly = false).get
      if (batch == 0) rows.keys.foreach(i => transaction.put(key(i), Array.emptyByteArray))
      else {
        val first = scan(transaction)
        val due = Seq.fill(fired) {
          expect(first.advance(), "rows are missing")
          at(first)
        }
        expect(due == rows.keys.take(fired).toSeq, s"batch $batch has other rows first")
        expect(first.passed <= 3 * fired, s"batch $batch passes ${first.passed} removed keys")
        first.close()
        val late = Seq.fill(2)(random.nextLong(due.last + 1)) ++ Seq.fill(2)(random.nextLong(timers * 10L))
        due.foreach(i => transaction.remove(key(i)))
        late.foreach(i => transaction.put(key(i), Array.emptyByteArray))
        rows = rows -- due ++ late.map(_ -> ())
      }
      commit(transaction, deltas(batch))
      if (batch % 2 == 0) state.indexCommitted()
      if (batch + 1 == below) state.reset(base(directory, deltas.take(below), batch + 1))
    }
    state.close()
  }

  /** Makes a base whose database has the first delta; the other deltas lie beside it. */
  private def base(directory: File, deltas: Seq[File], at: Int): BaseDirectory = {
    val path = new File(directory, "base")
    TestBases.build(path, deltas.take(1), new Random(1), compressed = false)
    val others = deltas.zipWithIndex.tail.reverse.map { case (delta, i) =>
      RestoredDelta(delta.getPath, version(i + 1))
    }
    val is = if (others.isEmpty) None else Some(RestoredFiles(version(1), timers.toLong, others))
    BaseDirectory(path.getPath, version(at), -1, () => (), is)
  }

  /** The first row is never removed; the keys that are removed behind it are passed once, too. */
  private def aRowInFrontOfThemChangesNothing(directory: File): Unit = {
    val state = open(directory)
    for (batch <- 0 until 12) {
      val transaction = state.tryBegin(version(batch), readOnly = false).get
      if (batch == 0) (0 until timers).foreach(i => transaction.put(key(i.toLong), Array.emptyByteArray))
      else {
        val rows = scan(transaction)
        expect(rows.advance() && at(rows) == 0, "the first row is another one")
        val due = Seq.fill(fired) {
          expect(rows.advance(), "rows are missing")
          at(rows)
        }
        expect(due.head == (batch - 1) * fired + 1, s"batch $batch begins at ${due.head}")
        expect(rows.passed <= 2 * fired, s"batch $batch passes ${rows.passed} removed keys")
        rows.close()
        due.foreach(i => transaction.remove(key(i)))
      }
      commit(transaction, new File(directory, s"delta-$batch.sst"))
      state.indexCommitted()
    }
    state.close()
  }

  /** The timer of a key moves again and again; the prefix of the key has one row. */
  private def removedRowsOfAPrefixAreNotPassed(directory: File): Unit = {
    val prefix = Array[Byte](0, 3, 2, 0, 0, 0, 7, 7)
    val until = prefix.init :+ 8.toByte
    val state = open(directory)
    for (batch <- 0 until 40) {
      val transaction = state.tryBegin(version(batch), readOnly = false).get
      val rows = transaction.scan(prefix, until, ordered = true).asInstanceOf[OrderedScan]
      if (batch > 0) {
        val old = if (rows.advance()) rows.key else null
        expect(old != null && old.last == (batch - 1).toByte && !rows.advance(), "the prefix has other rows")
        expect(rows.passed == 0, s"batch $batch passes ${rows.passed} removed keys")
        transaction.remove(old)
      }
      transaction.put(prefix :+ batch.toByte, Array.emptyByteArray)
      commit(transaction, new File(directory, s"moved-$batch.sst"))
      state.indexCommitted()
    }
    state.close()
  }
}
