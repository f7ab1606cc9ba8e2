package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.File

import scala.collection.immutable.TreeMap
import scala.util.Random

import org.apache.spark.sql.execution.streaming.state.incremental.base.BaseDirectory
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.memory.StoreMemory
import org.apache.spark.sql.execution.streaming.state.incremental.transaction.{StateConf, StoreVersions, Transaction}

/** A case with a reader that stays open while batch after batch is committed and merged. */
object LongReader {
  private val batches = 50
  private val mergedEach = 5 // batches

  /** The version of the reader stays as it was; later versions take no more memory than without the reader. */
  def pinsNothing(directory: File): Unit = {
    val memory = new StoreMemory(1L << 20)
    val walk = new LongReader(directory, memory)
    (1 to 3).foreach(walk.batch)
    val long = walk.read()
    (4 to 11).foreach(walk.batch)
    val short = walk.read() // reads of versions; above some of them the store restarts on a base
    (12 to 14).foreach(walk.batch)
    walk.check(short)
    short.transaction.abort()
    (15 to batches).foreach(walk.batch)
    walk.end(long)
    if (memory.usedBytes != 0) throw new AssertionError(s"${memory.usedBytes} bytes are still taken after close")
  }
}

private final case class Reading(transaction: Transaction, rows: StateModel.Rows)

private final class LongReader(directory: File, memory: StoreMemory) {
  import LongReader._
  import StateModel.{bytes, text, Rows}

  private val state = new StoreVersions(memory, StateConf(new File(directory, "spill")))
  private val random = new Random(5)
  private var at = VersionId.empty
  private var rows: Rows = TreeMap.empty
  private var deltas = Vector.empty[File]
  private var given = 0
  private var offered = 0

  private def expect(condition: Boolean, message: => String): Unit = if (!condition) throw new AssertionError(message)

  private def rowsOf(transaction: Transaction, ordered: Boolean = true): Seq[(String, String)] = {
    val scan = transaction.scan(bytes("\u0000\u0000"), bytes("\u0000\u0001"), ordered)
    Iterator.continually(scan).takeWhile(_.advance()).map(row => text(row.key) -> text(row.value)).toSeq
  }

  def read(): Reading = Reading(state.tryBegin(at, readOnly = true).get, rows)

  def check(reading: Reading): Unit = {
    val Reading(reader, wanted) = reading
    expect(rowsOf(reader) == wanted.toSeq, "a reader sees other rows than at its beginning")
    expect(rowsOf(reader, ordered = false).toMap == wanted, "a scan of a reader sees other rows than at its beginning")
    wanted.take(50).foreach { case (key, value) =>
      expect(text(reader.get(bytes(key))) == value, s"a reader reads $key")
    }
  }

  def batch(n: Int): Unit = {
    val transaction = state.tryBegin(at, readOnly = false).get
    for (_ <- 0 until 400) change(transaction, s"\u0000\u0000key${random.nextInt(2000)}", s"batch $n " + "v" * 100)
    if (n % 7 == 0) expect(rowsOf(transaction) == rows.toSeq, s"batch $n sees other rows")
    at = VersionId(n.toLong, Some(s"id$n"))
    val delta = new File(directory, s"long-$n.sst")
    transaction.writeDelta(delta, bytes(TestBases.meta(at, rows.size)))
    deltas :+= delta
    transaction.committed(at)
    state.indexCommitted()
    if (n % mergedEach == 0) offer()
    val bytesNow = memory.usedBytes + state.memoryUse.spilledBytes
    expect(bytesNow < (1600L << 10), s"after batch $n there are $bytesNow bytes in memory and spilled")
  }

  private def change(transaction: Transaction, key: String, value: String): Unit =
    if (random.nextInt(4) == 0) {
      transaction.remove(bytes(key))
      rows -= key
    } else {
      transaction.put(bytes(key), bytes(value))
      rows = rows.updated(key, value)
    }

  private def offer(): Unit = {
    val path = new File(directory, s"merged-${at.number}")
    TestBases.build(path, deltas, random, compressed = false)
    offered += 1
    state.offerBase(BaseDirectory(path.getPath, at, rows.size, () => given += 1))
  }

  def end(reading: Reading): Unit = {
    check(reading)
    val last = state.tryBegin(at, readOnly = false).get
    expect(rowsOf(last) == rows.toSeq && last.keys == rows.size, "the newest version has other rows")
    reading.transaction.abort()
    expect(rowsOf(last) == rows.toSeq, "the newest version has other rows after the reader's end")
    last.abort()
    state.close()
    expect(given == offered, s"$given of $offered bases were given back")
  }
}
