package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.{File, IOException}
import java.nio.file.Files
import java.util.concurrent.atomic.AtomicReference

import scala.util.Random

import org.apache.spark.sql.execution.streaming.state.incremental.base.BaseDirectory
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{ColumnFamilies, VersionId}
import org.apache.spark.sql.execution.streaming.state.incremental.lookahead.TakenRows
import org.apache.spark.sql.execution.streaming.state.incremental.memory.StoreMemory
import org.apache.spark.sql.execution.streaming.state.incremental.recent.FailedEvictions
import org.apache.spark.sql.execution.streaming.state.incremental.transaction.{
  FailedCalls, FreedRecords, StateConf, StoreVersions, Transaction
}

/**
 * Cases that the random walk does not meet: several threads in one transaction, faults in the middle, versions that
 * wait. Runs the cases of [[BoundedCosts]], [[RemovedKeys]], [[FailedCalls]] and [[SecondRuns]], too. Arguments: the
 * names of the cases to run; without any, all run.
 */
object HardCases extends StoreCases {
  private val cases: Seq[(String, File => Unit)] = Seq(
    "threads" -> severalThreadsUseOneTransaction,
    "interrupt" -> anInterruptedAbortFreesTheMemory,
    "publish" -> aFaultWhileAVersionIsIndexedHarmsNoOther,
    "change" -> aFaultWithinAChangeEndsTheTransaction,
    "compressed" -> compressedBasesCountTheirIndexes,
    "reader" -> LongReader.pinsNothing,
    "families" -> familiesAreCountedThoughOthersWereRemoved,
    "pending" -> versionsThatACommitRollsBackAreFreed,
    "shortage" -> FailedEvictions.loseNothing,
    "ahead" -> TakenRows.areBoundedAndInOrder,
    "key types" -> FamiliesByKey.haveTheTypesOfTheKey,
    "lists" -> ListedValues.haveTheirOwnKeys,
    "list feed" -> ListedValues.areFedAsAPutAndMerges,
    "figures" -> LargestFigures.areOfOneStore,
    "appends" -> FreedRecords.areNotReadAfterAppends,
    "read" -> aVersionThatWaitsHasRowsThatWereOnlyRead)

  def main(arguments: Array[String]): Unit = {
    val all = cases ++ BoundedCosts.cases ++ RemovedKeys.cases ++ FailedCalls.cases ++ SecondRuns.cases
    val known = all ++ BoundedCosts.alone
    val chosen = if (arguments.isEmpty) all else known.filter { case (name, _) => arguments.contains(name) }
    chosen.foreach { case (name, run) =>
      val directory = Files.createTempDirectory("hard-cases").toFile
      val startNs = System.nanoTime
      try run(directory)
      finally TestFiles.delete(directory)
      println(s"$name passes after ${(System.nanoTime - startNs) / 1000000} ms")
    }
    println(s"${chosen.size} cases pass")
  }

  /** Each thread has keys of its own and knows their rows; the budget makes them spill and evict. */
  private def severalThreadsUseOneTransaction(directory: File): Unit =
    withState(directory, 512L << 10) { (state, _) =>
      val workers = Seq.tabulate(3)(new Worker(_))
      var at = VersionId.empty
      for (batch <- 1 to 6) {
        val transaction = begin(state, at)
        val failure = new AtomicReference[Throwable]
        val threads = workers.map { worker =>
          new Thread(() =>
            try worker.work(transaction, 4000)
            catch { case e: Throwable => failure.compareAndSet(null, e) })
        }
        threads.foreach(_.start())
        threads.foreach { thread =>
          while (thread.isAlive) { // metrics may be read at any time
            val use = state.memoryUse
            expect(use.memtableBytes >= 0 && use.recentBytes >= 0 && use.spilledBytes >= 0, s"$use")
            thread.join(1)
          }
        }
        if (failure.get != null) throw failure.get
        workers.foreach(_.check(transaction))
        expect(transaction.keys == workers.map(_.size).sum, "the number of keys is wrong")
        at = VersionId(batch.toLong, Some(s"id$batch"))
        transaction.committed(at)
        if (batch % 2 == 0) state.indexCommitted()
      }
    }

  private final class Worker(number: Int) {
    private val random = new Random(number)
    private var rows = Map.empty[String, String]

    def size: Long = rows.size

    def work(transaction: Transaction, steps: Int): Unit = for (step <- 0 until steps) {
      val key = s"\u0000\u0000$number-${random.nextInt(1500)}"
      val got = StateModel.text(transaction.get(bytes(key)))
      expect(got == rows.getOrElse(key, null), s"$key is $got in thread $number")
      if (random.nextInt(4) == 0) {
        transaction.remove(bytes(key))
        rows -= key
      } else {
        val value = s"$number $step " + "v" * random.nextInt(80)
        transaction.put(bytes(key), bytes(value))
        rows += key -> value
      }
      if (step % 1000 == 999) check(transaction)
    }

    def check(transaction: Transaction): Unit = {
      val scan = transaction.scan(bytes(s"\u0000\u0000$number-"), bytes(s"\u0000\u0000$number."), ordered = true)
      var found = Map.empty[String, String]
      while (scan.advance()) found += StateModel.text(scan.key) -> StateModel.text(scan.value)
      scan.close()
      expect(found == rows, s"a scan in thread $number shows ${found.size} rows, not ${rows.size}")
    }
  }

  private def anInterruptedAbortFreesTheMemory(directory: File): Unit =
    withState(directory, 256L << 20) { (state, memory) =>
      val transaction = begin(state, VersionId.empty)
      for (i <- 0 until 400000) transaction.put(bytes(s"\u0000\u0000key$i"), bytes("v"))
      val writer = new Thread(() => transaction.writeDelta(new File(directory, "delta.sst"), bytes("{}")))
      writer.start()
      while (!new File(directory, "delta.sst").exists) Thread.onSpinWait()
      expect(writer.isAlive, "nothing was left to interrupt")
      Thread.currentThread.interrupt()
      transaction.abort()
      expect(Thread.interrupted(), "the interrupt is forgotten")
      writer.join()
      expect(memory.usedBytes == 0, s"${memory.usedBytes} bytes are still taken after the abort")
    }

  private def aFaultWhileAVersionIsIndexedHarmsNoOther(directory: File): Unit =
    for (ordered <- Seq(true, false)) withState(directory, 64L << 20) { (state, memory) =>
      def key(i: Int): Array[Byte] = Array[Byte](0, 0, 1, 0, 0, 0, 7, (i >> 8).toByte, i.toByte)
      val until = Array[Byte](0, 0, 1, 0, 0, 0, 8)
      def rows(transaction: Transaction): Seq[String] = {
        val scan = transaction.scan(key(0).take(7), until, ordered)
        val found = Iterator.continually(scan).takeWhile(_.advance()).map(_.value).map(StateModel.text).toSeq
        scan.close()
        found
      }
      val first = begin(state, VersionId.empty)
      for (i <- 0 until 1000) first.put(key(i), bytes("one"))
      first.committed(VersionId(1, Some("a")))
      val second = begin(state, VersionId(1, Some("a")))
      expect(rows(second).size == 1000, "rows are missing")
      // The index has room for these keys, the orders have not.
      for (i <- 0 until 200) second.put(key(i), bytes("two"))
      for (i <- 0 until 300) second.put(Array[Byte](0, 0, 2, 0, 0, 0, (i >> 8).toByte, i.toByte), bytes("two"))
      second.committed(VersionId(2, Some("b")))
      val spill = new File(directory, "spill")
      TestFiles.delete(spill)
      Files.write(spill.toPath, Array[Byte](1))
      memory.setBudget(memory.usedBytes)
      try state.indexCommitted()
      catch { case _: IOException => }
      Files.delete(spill.toPath)
      memory.setBudget(64L << 20)
      val again = begin(state, VersionId(1, Some("a")))
      expect(rows(again) == Seq.fill(1000)("one"), s"version 1 has ${rows(again).count(_ == "two")} rows of version 2")
      expect((0 until 1000).forall(i => StateModel.text(again.get(key(i))) == "one"), "version 1 has rows of version 2")
      for (i <- 0 until 1000) again.put(key(i), bytes("three"))
      again.committed(VersionId(2, Some("c")))
      state.indexCommitted()
      val last = begin(state, VersionId(2, Some("c")))
      expect(rows(last) == Seq.fill(1000)("three"), "the version after the fault is wrong")
      last.abort()
    }

  private def aFaultWithinAChangeEndsTheTransaction(directory: File): Unit =
    withState(directory, 1L << 20) { (state, memory) =>
      val transaction = begin(state, VersionId.empty)
      transaction.put(bytes("\u0000\u0000a"), bytes("v"))
      Files.write(new File(directory, "spill").toPath, Array[Byte](1))
      memory.setBudget(memory.usedBytes)
      val failed =
        try {
          for (i <- 0 until 100000) transaction.put(bytes(s"\u0000\u0000$i"), bytes("v"))
          false
        } catch { case _: IOException => true }
      expect(failed, "nothing failed")
      memory.setBudget(1L << 20)
      val refused =
        try {
          transaction.committed(VersionId(1, Some("a")))
          false
        } catch { case e: IllegalStateException => e.getCause.isInstanceOf[IOException] }
      expect(refused, "a change that failed half way can be committed")
      transaction.abort()
      new File(directory, "spill").delete()
    }

  private def compressedBasesCountTheirIndexes(directory: File): Unit = {
    val memory = new StoreMemory(16L << 20)
    val at = VersionId(1, Some("a"))
    val states = Seq.tabulate(8) { i =>
      val state = new StoreVersions(memory, StateConf(new File(directory, "spill")))
      val transaction = begin(state, VersionId.empty)
      for (n <- 0 until 2000) transaction.put(bytes(f"\u0000\u0000a key of some length $n%04d"), bytes(s"value$n"))
      val delta = new File(directory, s"compressed-$i.sst")
      transaction.writeDelta(delta, bytes(TestBases.meta(at, 2000)))
      transaction.abort()
      val path = new File(directory, s"compressed-$i")
      TestBases.build(path, Seq(delta), new Random(1), compressed = true, rewritten = true)
      state.reset(BaseDirectory(path.getPath, at, 2000, () => ()))
      state
    }
    val indexes = states.map(_.memoryUse.baseBytes)
    expect(indexes.forall(_ > 0), s"the indexes take $indexes bytes")
    expect(memory.usedBytes >= indexes.sum, s"${memory.usedBytes} bytes are taken, and $indexes for indexes")
    states.init.foreach(_.close())
    val last = begin(states.last, at)
    expect(StateModel.text(last.get(bytes("\u0000\u0000a key of some length 0007"))) == "value7",
      "the last base cannot be read")
    last.abort()
    states.last.close()
    expect(memory.usedBytes == 0, s"${memory.usedBytes} bytes are still taken after close")
  }

  /** Versions wait for the end of a reader; some of them came from attempts that failed. */
  private def versionsThatACommitRollsBackAreFreed(
      directory: File): Unit = withState(directory, 1L << 20) { (state, _) =>
    def key(i: Int): Array[Byte] = Array[Byte](0, 0, i.toByte)
    def batch(from: VersionId, number: Int, id: String): VersionId = {
      val transaction = begin(state, from)
      transaction.put(key(number), bytes(id))
      val made = VersionId(number.toLong, Some(id))
      transaction.committed(made)
      made
    }
    val first = batch(VersionId.empty, 1, "a")
    val reader = state.tryBegin(first, readOnly = true).get
    batch(batch(first, 2, "x"), 3, "y")
    val second = batch(first, 2, "b")
    val given = batch(second, 3, "c")
    val third = batch(second, 3, "d")
    val fourth = batch(third, 4, "e")
    expect(state.tryBegin(given, readOnly = false).isEmpty, "an attempt that was given up is there")
    val last = begin(state, fourth)
    val found = (1 to 4).map(i => StateModel.text(last.get(key(i))))
    expect(found == Seq("a", "b", "d", "e"), s"the newest version has $found")
    last.abort()
    reader.abort()
  }

  private def familiesAreCountedThoughOthersWereRemoved(
      directory: File): Unit = withState(directory, 1L << 20) { (state, _) =>
    def key(family: Int, i: Int): Array[Byte] = ColumnFamilies.from(family) ++ bytes(s"key$i")
    def counts(families: ColumnFamilies): Map[String, Long] = families.byName.map { case (name, one) =>
      name -> one.keys
    }
    var at = VersionId.empty
    var before = ColumnFamilies.initial
    def batch(now: ColumnFamilies, wanted: Map[String, Long])(change: Transaction => Unit): Unit = {
      val transaction = begin(state, at)
      change(transaction)
      before = now.counted(before, transaction.keys, transaction.growthByFamily)
      expect(counts(before) == wanted, s"${counts(before)}, not $wanted")
      at = VersionId(at.number + 1, Some(s"id${at.number}"))
      transaction.committed(at)
    }
    def removeAll(transaction: Transaction, family: Int): Unit =
      transaction.removeRange(ColumnFamilies.from(family), ColumnFamilies.until(family))
    val first = before.added("first", internal = false)
    batch(first, Map("default" -> 10L, "first" -> 7L)) { transaction =>
      for (i <- 0 until 10) transaction.put(key(0, i), bytes("v"))
      for (i <- 0 until 7) transaction.put(key(1, i), bytes("v"))
    }
    val second = before.removed("first").added("second", internal = false)
    expect(second.get("second").get.id == 2, "the id of a removed family is used again")
    batch(second, Map("default" -> 10L, "second" -> 3L)) { transaction =>
      removeAll(transaction, 1)
      for (i <- 5 until 8) transaction.put(key(2, i), bytes("w"))
    }
    batch(before.removed("second").added("third", internal = false), Map("default" -> 9L, "third" -> 1L)) {
      transaction =>
        removeAll(transaction, 2)
        transaction.put(key(3, 5), bytes("x"))
        transaction.remove(key(0, 0))
    }
    batch(before.removed("third"), Map("default" -> 9L))(removeAll(_, 3))
  }

  /**
   * The rows that a batch read from the base, and did not change, are in its memory: a version that waits for the index
   * has them there.
   */
  private def aVersionThatWaitsHasRowsThatWereOnlyRead(directory: File): Unit =
    withState(directory, 64L << 20) { (state, _) =>
      val prefix = Array[Byte](0, 0, 2, 0, 0, 0, 7, 7)
      val until = prefix.init :+ 8.toByte
      def version(n: Int) = VersionId(n.toLong, Some(s"id$n"))
      def commit(transaction: Transaction, n: Int): File = {
        val delta = new File(directory, s"read-$n.sst")
        transaction.writeDelta(delta, bytes(TestBases.meta(version(n), transaction.keys)))
        transaction.committed(version(n))
        delta
      }
      def rows(transaction: Transaction, from: Array[Byte], until: Array[Byte]): Seq[Byte] = {
        val scan = transaction.scan(from, until, ordered = true)
        Iterator.continually(scan.advance()).takeWhile(identity).map(_ => scan.key.last).toSeq
      }
      val first = begin(state, VersionId.empty)
      for (i <- 0 until 20) first.put(prefix :+ i.toByte, bytes("v"))
      val base = new File(directory, "read-base")
      TestBases.build(base, Seq(commit(first, 1)), new Random(1), compressed = false)
      state.reset(BaseDirectory(base.getPath, version(1), 20, () => ()))
      val reader = state.tryBegin(version(1), readOnly = true).get // so that later versions stay out of the index
      val second = begin(state, version(1))
      for (i <- 3 until 20 by 4) expect(second.get(prefix :+ i.toByte) != null, s"row $i is missing")
      second.put(prefix :+ 20.toByte, bytes("v"))
      commit(second, 2)
      for (_ <- 0 until 2) {
        val next = begin(state, version(2))
        expect(rows(next, prefix, until) == (0 to 20), s"the prefix has ${rows(next, prefix, until)}")
        expect(rows(next, prefix.take(2), Array[Byte](0, 1)) == (0 to 20), "the column family has other rows")
        next.abort()
      }
      reader.abort()
      val last = begin(state, version(2))
      expect(rows(last, prefix, until) == (0 to 20), "the prefix has other rows once it is in the index")
      last.abort()
    }
}
