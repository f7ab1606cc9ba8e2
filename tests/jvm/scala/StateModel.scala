package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.File
import java.nio.charset.StandardCharsets.ISO_8859_1
import java.nio.file.Files

import scala.collection.immutable.TreeMap
import scala.collection.mutable
import scala.util.Random

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{DeltaFile, VersionId}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{MemoryUse, StoreMemory}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.DeltaReader
import org.apache.spark.sql.execution.streaming.state.incremental.transaction.{StateConf, StoreVersions, Transaction}

/**
 * A random walk over one store, beside a sorted map for every version: the store has to answer as the map does. RocksDB
 * makes the bases from the deltas that the store wrote. Arguments: seed, steps, [budget in bytes].
 */
object StateModel {
  type Rows = TreeMap[String, String]
  val noRows: Rows = TreeMap.empty

  /** A committed version: its rows, its delta, and the version before. */
  final class Node(val at: VersionId, val rows: Rows, val delta: File, val parent: Node) {
    def path: List[Node] = if (parent == null) Nil else this :: parent.path
  }

  def bytes(text: String): Array[Byte] = text.getBytes(ISO_8859_1)
  def text(bytes: Array[Byte]): String = if (bytes == null) null else new String(bytes, ISO_8859_1)

  def main(arguments: Array[String]): Unit = {
    val seed = arguments(0).toLong
    val budget = if (arguments.length > 2) arguments(2).toLong else 0L
    val directory = Files.createTempDirectory("state-model").toFile
    try {
      val walk = new StateWalk(seed, directory, budget)
      walk.run(arguments(1).toInt)
      println(s"seed $seed: ${walk.summary}")
    } finally TestFiles.delete(directory)
  }
}

/**
 * The walk of one seed.
 *
 * @param fixedBudget the budget in bytes; 0: any budget, and others later
 * @param shared memory that other stores use, too; null: the store has its own
 */
final class StateWalk(seed: Long, directory: File, fixedBudget: Long, shared: StoreMemory = null) {
  import StateModel._

  private val random = new Random(seed)
  private val keys = new TestKeys(random)
  private val bases = new TestBases(directory, random)
  private val memory = if (shared != null) shared else ownMemory()
  private val conf = StateConf(new File(directory, "spill"), fewestPassed = pick(1, 3, 20))
  private val root = new Node(VersionId.empty, TreeMap.empty, null, null)
  private val committed = mutable.ArrayBuffer(root)
  private val counts = mutable.Map.empty[String, Int].withDefaultValue(0)
  private var tip = root
  @volatile private var state = new StoreVersions(memory, conf)
  private var readers = List.empty[(Transaction, Node)]
  private var deltas = 0

  private def ownMemory(): StoreMemory = new StoreMemory(
    if (fixedBudget > 0) fixedBudget else pick(100L << 10, 400L << 10, 2L << 20, 64L << 20),
    largestPieceBytes = pick(16L << 10, 256L << 10, 64L << 20))

  private def nextBudget(): Long =
    if (shared != null) pick(400L << 10, 1L << 20, 4L << 20)
    else if (fixedBudget > 0) fixedBudget
    else pick(100L << 10, 1L << 20, 64L << 20)

  def summary: String =
    s"budget ${memory.budgetBytes} " + counts.toSeq.sorted.map { case (name, n) => s"$name=$n" }.mkString(" ")

  /** Returns the memory use. For any thread, while the walk runs. */
  def memoryUse: MemoryUse = state.memoryUse

  private def pick[T](choices: T*): T = choices(random.nextInt(choices.length))

  private def expect(condition: Boolean, message: => String): Unit =
    if (!condition) throw new AssertionError(s"seed $seed, after ${counts.toSeq.sorted.mkString(" ")}: $message")

  private def same[T](got: T, wanted: T, message: => String): Unit = expect(got == wanted,
    s"$message: got $got, wanted $wanted")

  def run(steps: Int): Unit = {
    var step = 0
    while (step < steps) {
      step += 1
      random.nextInt(100) match {
        case n if n < 55 => batch(tip)
        case n if n < 59 => batch(pick(tip.path.take(4) :+ tip: _*))
        case n if n < 62 => runAgain()
        case n if n < 70 => openReader()
        case n if n < 80 => useReader()
        case n if n < 90 => offer()
        case n if n < 93 => restore(pick(committed.toSeq: _*))
        case n if n < 96 => abortFromOutside()
        case n if n < 97 => reopen()
        case _ => memory.setBudget(nextBudget())
      }
      expect(memory.usedBytes >= 0, "memory is negative")
    }
    readers.foreach { case (reader, node) => finish(reader, node) }
    state.close()
    state.close()
    same(state.memoryUse, MemoryUse(0, 0, 0, 0, 0), "the memory of a closed store")
    if (shared == null) same(memory.usedBytes, 0L, "bytes that are still taken after close")
    same(bases.open, 0, "bases that are still open after close")
  }

  private def count(name: String): Unit = counts(name) += 1

  private def begin(node: Node, readOnly: Boolean): Transaction =
    state.tryBegin(node.at, readOnly).getOrElse {
      count("restore")
      if (node eq root) state.resetEmpty() else state.reset(bases.make(node))
      state.tryBegin(node.at, readOnly).getOrElse(
        throw new AssertionError(s"seed $seed: cannot begin after reset at ${node.at}"))
    }

  private def batch(node: Node): Unit = {
    count(if (node eq tip) "batch" else "rollback")
    val transaction = begin(node, readOnly = false)
    var rows = node.rows
    var left = pick(0, 1, 3, 30, 300, 1500)
    while (left > 0) {
      left -= 1
      rows = change(transaction, rows)
    }
    if (random.nextInt(3) == 0) check(transaction, rows)
    if (random.nextInt(6) == 0) {
      transaction.abort()
      transaction.abort()
      ended(transaction)
      count("abort")
    } else commit(transaction, node, rows)
  }

  /** Runs the batch of the newest version again, once or more often, and goes on from any of the attempts. */
  private def runAgain(): Unit = if (tip.parent != null) {
    val before = tip.parent
    val attempts = mutable.ArrayBuffer(tip)
    for (_ <- 0 until pick(1, 1, 2, 5)) {
      batch(before)
      if (!attempts.contains(tip)) attempts += tip
    }
    tip = pick(attempts.head, attempts.last, pick(attempts.toSeq: _*))
    if (tip ne attempts.last) count("earlier attempt")
    batch(tip)
  }

  private def commit(transaction: Transaction, node: Node, rows: Rows): Unit = {
    if (random.nextBoolean()) same(transaction.keys, rows.size.toLong, "keys before the commit")
    deltas += 1
    val at = VersionId(node.at.number + 1, Some(s"id$deltas"))
    val file = new File(directory, s"delta-$deltas.sst")
    val meta = TestBases.meta(at, rows.size)
    if (random.nextInt(20) == 0) {
      transaction.writeDelta(file, bytes(meta))
      file.delete()
    }
    same(transaction.keys, rows.size.toLong, "keys")
    val delta = transaction.writeDelta(file, bytes(meta))
    checkDelta(file, delta, transaction, node.rows, rows, meta)
    transaction.committed(at)
    ended(transaction)
    tip = new Node(at, rows, file, node)
    committed += tip
    if (random.nextBoolean()) state.indexCommitted()
    same(state.newest, tip.at, "tip")
    count("commit")
  }

  private def checkDelta(
      file: File, delta: DeltaFile, transaction: Transaction, before: Rows, after: Rows, meta: String): Unit = {
    same(delta.bytes, file.length, "bytes of the delta")
    same(delta.crc32, TestFiles.crc32(file), "CRC-32 of the delta")
    val changes = mutable.ArrayBuffer.empty[(String, String, Boolean)]
    val reader = new DeltaReader(file)
    while (reader.advance()) changes += ((text(reader.key), text(reader.value), reader.isAppended))
    reader.close()
    val rows = changes.foldLeft(before) { case (rows, (key, value, isAppended)) =>
      if (value == null) rows - key
      else rows.updated(key, rows.get(key).filter(_ => isAppended).map(_ + "," + value).getOrElse(value))
    }
    expect(rows == after, "the delta does not lead from one version to the next")
    val appended = changes.filter(_._3).map(_._1).toSet
    val last = changes.takeRight((delta.puts + delta.removes).toInt - appended.size).map(_._1)
    expect(last == last.distinct.sorted, "the last changes of the delta are not in order")
    expect(!last.exists(appended), "the last change of a key that was appended to is there twice")
    val puts = (appended ++ last).count(after.contains).toLong
    val removes = (appended ++ last).size - puts
    if (appended.nonEmpty) count("delta with appended values")
    same((delta.puts, delta.removes), (puts, removes), "records of the delta")
    same((transaction.puts, transaction.removes), (puts, removes), "changes of the transaction")
    TestBases.verify(file, puts + removes + 1, meta)
  }

  private def change(transaction: Transaction, rows: Rows): Rows = {
    val key = keys.next(rows)
    random.nextInt(20) match {
      case n if n < 6 =>
        same(text(transaction.get(bytes(key))), rows.getOrElse(key, null), s"get $key")
        if (n < 3) put(transaction, rows, key) else rows
      case n if n < 11 => put(transaction, rows, key)
      case n if n < 14 =>
        transaction.remove(bytes(key))
        rows - key
      case 14 =>
        val value = keys.value()
        transaction.append(bytes(key), bytes(value), ',')
        rows.updated(key, rows.get(key).map(_ + "," + value).getOrElse(value))
      case 15 =>
        val wanted = Array.fill(5)(keys.next(rows))
        val got = transaction.multiGet(wanted.map(bytes)).map(text).toSeq
        same(got, wanted.map(rows.getOrElse(_, null)).toSeq, "multiGet")
        rows
      case 16 =>
        same(transaction.contains(bytes(key)), rows.contains(key), s"contains $key")
        rows
      case 17 if random.nextInt(20) == 0 => removeRange(transaction, rows)
      case 18 if random.nextInt(4) == 0 => scan(transaction, rows, changing = true)
      case 19 if random.nextInt(20) == 0 =>
        same(transaction.keys, rows.size.toLong, "keys in between")
        rows
      case _ =>
        val prefix = if (random.nextBoolean()) "\u0000\u0002" + keys.prefix() else key.take(3)
        val until = if (prefix.last == 255) null else prefix.init + (prefix.last + 1).toChar
        checkScan(transaction, rows, prefix, until, ordered = random.nextBoolean())
        rows
    }
  }

  private def put(transaction: Transaction, rows: Rows, key: String): Rows = {
    val value = keys.value()
    transaction.put(bytes(key), bytes(value))
    rows.updated(key, value)
  }

  private def range(rows: Rows): (String, String) = {
    val ends = Seq(keys.next(rows), keys.next(rows)).sorted
    (if (random.nextInt(4) == 0) "" else ends.head, if (random.nextInt(4) == 0) null else ends.last)
  }

  private def cut(rows: Rows, from: String, until: String): Rows =
    if (until == null) rows.rangeFrom(from) else rows.range(from, until)

  private def removeRange(transaction: Transaction, rows: Rows): Rows = {
    val (from, until) = range(rows)
    val gone = cut(rows, from, until)
    same(transaction.removeRange(bytes(from), if (until == null) null else bytes(until)), gone.size.toLong,
      "rows removed")
    rows -- gone.keys
  }

  private def scan(transaction: Transaction, rows: Rows, changing: Boolean): Rows = {
    val (from, until) = range(rows)
    val ordered = random.nextBoolean()
    val found = transaction.scan(bytes(from), if (until == null) null else bytes(until), ordered)
    var now = rows
    val got = mutable.ArrayBuffer.empty[(String, String)]
    while (found.advance()) {
      got += text(found.key) -> text(found.value)
      if (changing && random.nextInt(10) == 0) now = put(transaction, now, keys.next(now))
      if (changing && random.nextInt(10) == 0) {
        transaction.remove(found.key)
        now = now - text(found.key)
      }
    }
    found.close()
    compare(got.toSeq, cut(rows, from, until), ordered)
    now
  }

  private def checkScan(transaction: Transaction, rows: Rows, from: String, until: String, ordered: Boolean): Unit = {
    val found = transaction.scan(bytes(from), if (until == null) null else bytes(until), ordered)
    val got = mutable.ArrayBuffer.empty[(String, String)]
    while (found.advance()) got += text(found.key) -> text(found.value)
    expect(!found.advance(), "a scan goes on after its end")
    if (random.nextBoolean()) found.close()
    compare(got.toSeq, cut(rows, from, until), ordered)
  }

  private def compare(got: Seq[(String, String)], wanted: Rows, ordered: Boolean): Unit = {
    val rows = if (ordered) got else got.sortBy(_._1)
    if (rows != wanted.toSeq) {
      val missing = (wanted.toSet -- rows).take(3)
      val extra = (rows.toSet -- wanted.toSet).take(3)
      expect(false,
        s"scan (ordered $ordered): ${got.size} rows, wanted ${wanted.size}; missing $missing, too many $extra")
    }
  }

  private def check(transaction: Transaction, rows: Rows): Unit = {
    checkScan(transaction, rows, "", null, ordered = false)
    checkScan(transaction, rows, "", null, ordered = true)
    rows.keys.take(50).foreach(key => same(text(transaction.get(bytes(key))), rows(key), s"get $key"))
  }

  private def ended(transaction: Transaction): Unit = {
    val refused =
      try {
        transaction.get(Array[Byte](0, 0))
        false
      } catch { case _: IllegalStateException => true }
    expect(refused, "a transaction answers after its end")
  }

  private def openReader(): Unit =
    if (readers.size < 4) {
      val node = pick(tip, tip, if (tip.parent == null) tip else tip.parent)
      val newest = state.newest
      state.tryBegin(node.at, readOnly = true).foreach { reader =>
        count("reader")
        readers ::= reader -> node
      }
      if (newest.number != node.at.number) {
        same(state.newest, newest, "the newest version in memory once a reader has begun")
      }
    }

  private def useReader(): Unit = if (readers.nonEmpty) {
    val (reader, node) = pick(readers: _*)
    val refused =
      try {
        reader.put(Array[Byte](0, 0, 1), Array[Byte](1))
        false
      } catch { case _: IllegalStateException => true }
    expect(refused, "a reader takes a put")
    check(reader, node.rows)
    if (random.nextInt(3) != 0) {
      readers = readers.filterNot(_._1 eq reader)
      finish(reader, node)
    }
  }

  private def finish(reader: Transaction, node: Node): Unit = {
    check(reader, node.rows)
    same(reader.keys, node.rows.size.toLong, "keys of a reader")
    reader.abort()
    ended(reader)
  }

  private def offer(): Unit = if (tip.parent != null) {
    count("offer")
    val wanted = state.wantsIngest
    state.offerBase(bases.make(if (wanted) tip else pick(tip.path.take(6): _*)))
  }

  private def restore(node: Node): Unit = {
    count("reset")
    if (node eq root) state.resetEmpty() else state.reset(bases.make(node))
    tip = node
    batch(node)
  }

  private def abortFromOutside(): Unit = {
    count("kill")
    val transaction = begin(tip, readOnly = false)
    val killer = new Thread(() => {
      Thread.sleep(0, random.nextInt(900000))
      transaction.abort()
    })
    killer.start()
    try {
      var rows = tip.rows
      while (true) rows = change(transaction, rows)
    } catch { case _: IllegalStateException => }
    killer.join()
    ended(transaction)
  }

  private def reopen(): Unit = {
    count("reopen")
    val closers = Seq.fill(2)(new Thread(() => state.close()))
    closers.foreach(_.start())
    closers.foreach(_.join())
    val refused =
      try {
        state.tryBegin(tip.at, readOnly = true)
        false
      } catch { case _: IllegalStateException => true }
    expect(refused, "a closed store begins a transaction")
    if (random.nextBoolean()) {
      readers.foreach { case (reader, node) => finish(reader, node) }
      readers = Nil
    }
    state = new StoreVersions(memory, conf)
  }
}
