package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.{File, IOException}
import java.lang.management.ManagementFactory
import java.nio.file.Files
import java.util.concurrent.atomic.AtomicReference

import scala.util.Random

import org.apache.spark.sql.execution.streaming.state.incremental.base.BaseDirectory
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{ColumnFamilies, VersionId}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{KeyHash, StoreMemory}
import org.apache.spark.sql.execution.streaming.state.incremental.recent.FailedEvictions
import org.apache.spark.sql.execution.streaming.state.incremental.transaction.{StateConf, StoreVersions, Transaction}

/**
 * What the random walk does not meet: several threads in one transaction, keys that were chosen to do harm,
 * faults in the middle, very many changes. Arguments: the names of cases; none: all.
 */
object HardCases {
  private val cases: Seq[(String, File => Unit)] = Seq(
    "threads" -> severalThreadsUseOneTransaction,
    "interrupt" -> anInterruptedAbortFreesTheMemory,
    "flood" -> keysWithOneFilterHashAreNoSlower,
    "expectation" -> aLargeBatchDoesNotBurdenTheNext,
    "publish" -> aFaultWhileAVersionIsIndexedHarmsNoOther,
    "change" -> aFaultWithinAChangeEndsTheTransaction,
    "deep" -> keysThatBeginAllAlikeAreSorted,
    "prefix" -> manyRowsOfOnePrefixCostNoMoreEach,
    "small" -> fewRowsTakeLittleMemory,
    "pieces" -> tablesAreLargerThanAnyFile,
    "compressed" -> compressedBasesShareACache,
    "reader" -> LongReader.pinsNothing,
    "mappings" -> whatIsSpilledTakesFewMappings,
    "families" -> familiesAreCountedThoughTheirIdsAreReused,
    "pending" -> whatACommitRollsBackIsFreed,
    "shortage" -> FailedEvictions.loseNothing,
    "read" -> aVersionThatWaitsHasRowsThatWereOnlyRead)

  /** These are run by themselves, in a JVM with a small heap. */
  private val byThemselves: Seq[(String, File => Unit)] = Seq("heap" -> manyChangesNeedLittleHeap)

  def main(arguments: Array[String]): Unit = {
    val all = cases ++ RemovedKeys.cases
    val chosen = if (arguments.isEmpty) all else (all ++ byThemselves).filter { case (name, _) => arguments.contains(name) }
    chosen.foreach { case (name, run) =>
      val directory = Files.createTempDirectory("hard-cases").toFile
      val startNs = System.nanoTime
      try run(directory)
      finally TestFiles.delete(directory)
      println(s"$name passes after ${(System.nanoTime - startNs) / 1000000} ms")
    }
    println(s"${chosen.size} cases pass")
  }

  private def expect(condition: Boolean, what: => String): Unit = if (!condition) throw new AssertionError(what)

  private def bytes(text: String): Array[Byte] = StateModel.bytes(text)

  private def withState(directory: File, budgetBytes: Long)(use: (StoreVersions, StoreMemory) => Unit): Unit =
    withState(directory, new StoreMemory(budgetBytes))(use)

  private def withState(directory: File, memory: StoreMemory)(use: (StoreVersions, StoreMemory) => Unit): Unit = {
    val state = new StoreVersions(memory, StateConf(new File(directory, "spill")))
    use(state, memory)
    state.close()
    expect(memory.usedBytes == 0, s"${memory.usedBytes} bytes are still taken after close")
  }

  private def begin(state: StoreVersions, at: VersionId): Transaction = state.tryBegin(at, readOnly = false).get

  /** Each thread has keys of its own and knows what must be there; the budget makes them spill and evict. */
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
          while (thread.isAlive) { // metrics may be asked for at any time
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

  /** Where half of a 16-byte lane is XXH3's public secret, the other half does not count. */
  private def colliding(i: Int): Array[Byte] = {
    val secret = Array(0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb)
    val key = new Array[Byte](43)
    for (j <- 0 until 8) {
      key(27 + j) = secret(j).toByte
      key(35 + j) = (i * 0x9E3779B97F4A7C15L >>> (8 * j)).toByte
    }
    key
  }

  private def keysWithOneFilterHashAreNoSlower(directory: File): Unit =
    withState(directory, 64L << 20) { (state, _) =>
      val keys = Array.tabulate(20000)(colliding)
      expect(keys.map(KeyHash.of(_)).distinct.length == 1, "the keys do no harm")
      val transaction = begin(state, VersionId.empty)
      val tookMs = cpuMs {
        keys.foreach { key =>
          transaction.get(key)
          transaction.put(key, key)
        }
        transaction.committed(VersionId(1, Some("a")))
        state.indexCommitted()
      }
      expect(tookMs < 1500, s"${keys.length} keys took $tookMs ms")
      val next = begin(state, VersionId(1, Some("a")))
      keys.foreach(key => expect(java.util.Arrays.equals(next.get(key), key), "a row is wrong"))
      next.abort()
    }

  private def aLargeBatchDoesNotBurdenTheNext(directory: File): Unit =
    withState(directory, 8L << 20) { (state, _) =>
      val first = begin(state, VersionId.empty)
      for (i <- 0 until 300000) first.put(bytes(s"\u0000\u0000$i"), Array.emptyByteArray)
      first.committed(VersionId(1, Some("a")))
      val second = begin(state, VersionId(1, Some("a")))
      second.put(bytes("\u0000\u0000one"), Array.emptyByteArray)
      val took = state.memoryUse.memtableBytes
      expect(took <= (1L << 20), s"one row takes $took bytes")
      second.abort()
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
      // The index has room for these, the orders have not.
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

  /** Each key is the one before and 8 bytes more, so that sorting by 8 bytes at a time leaves a tie each time. */
  private def keysThatBeginAllAlikeAreSorted(directory: File): Unit =
    withState(directory, 512L << 20) { (state, _) =>
      val transaction = begin(state, VersionId.empty)
      val n = 2500
      for (i <- 0 until n) {
        val key = Array.fill[Byte](2 + 8 * i + 1)('a')
        key(0) = 0
        key(1) = 0
        key(key.length - 1) = 'b'
        transaction.put(key, bytes("v"))
      }
      val failure = new AtomicReference[Throwable]
      val delta = new File(directory, "deep.sst")
      val task = new Thread(null, () => transaction.writeDelta(delta, bytes("{}")), "task", 160L << 10)
      task.setUncaughtExceptionHandler((_, e) => failure.set(e))
      task.start()
      task.join()
      expect(failure.get == null, s"sorting fails with ${failure.get}")
      TestBases.verify(delta, n + 1L, "{}")
      transaction.abort()
    }

  private def fewRowsTakeLittleMemory(directory: File): Unit =
    withState(directory, 8L << 20) { (state, memory) =>
      var at = VersionId.empty
      for (batch <- 1 to 20) {
        val transaction = begin(state, at)
        for (i <- 0 until 10) transaction.put(bytes(s"\u0000\u0000$batch-$i"), new Array[Byte](150))
        at = VersionId(batch.toLong, Some(s"id$batch"))
        transaction.committed(at)
      }
      state.indexCommitted()
      expect(memory.usedBytes < 20 * (8 << 10), s"20 batches of 10 rows take ${memory.usedBytes} bytes")
    }

  private def compressedBasesShareACache(directory: File): Unit = {
    val memory = new StoreMemory(16L << 20)
    val at = VersionId(1, Some("a"))
    val states = Seq.tabulate(8) { i =>
      val state = new StoreVersions(memory, StateConf(new File(directory, "spill")))
      val transaction = begin(state, VersionId.empty)
      for (n <- 0 until 100) transaction.put(bytes(s"\u0000\u0000key$n"), bytes(s"value$n"))
      val delta = new File(directory, s"compressed-$i.sst")
      transaction.writeDelta(delta, bytes(TestBases.meta(at, 100)))
      transaction.abort()
      val path = new File(directory, s"compressed-$i")
      TestBases.build(path, Seq(delta), new Random(1), compressed = true, rewritten = true)
      state.reset(BaseDirectory(path.getPath, at, 100, () => ()))
      state
    }
    expect(memory.usedBytes > (2L << 20), "no base is read by RocksDB")
    expect(memory.usedBytes < (3L << 20), s"8 small bases take ${memory.usedBytes} bytes of ${memory.budgetBytes}")
    states.init.foreach(_.close())
    val last = begin(states.last, at)
    expect(StateModel.text(last.get(bytes("\u0000\u0000key7"))) == "value7", "the last base cannot be read")
    last.abort()
    states.last.close()
    expect(memory.usedBytes == 0, s"${memory.usedBytes} bytes are still taken after close")
  }

  /** Versions that wait for a reader to end, of which the last was of an attempt that failed. */
  private def whatACommitRollsBackIsFreed(directory: File): Unit = withState(directory, 1L << 20) { (state, _) =>
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
    val second = batch(first, 2, "b")
    val given = batch(second, 3, "c")
    val third = batch(second, 3, "d")
    expect(state.tryBegin(given, readOnly = false).isEmpty, "an attempt that was given up is there")
    val last = begin(state, third)
    val found = (1 to 3).map(i => StateModel.text(last.get(key(i))))
    expect(found == Seq("a", "b", "d"), s"the newest version has $found")
    last.abort()
    reader.abort()
  }

  private def familiesAreCountedThoughTheirIdsAreReused(directory: File): Unit = withState(directory, 1L << 20) { (state, _) =>
    def key(family: Int, i: Int): Array[Byte] = ColumnFamilies.from(family) ++ bytes(s"key$i")
    def counts(families: ColumnFamilies): Map[String, Long] = families.byName.map { case (name, one) => name -> one.keys }
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
    def removeAll(transaction: Transaction): Unit = transaction.removeRange(ColumnFamilies.from(1), ColumnFamilies.until(1))
    val first = before.added("first", internal = false)
    batch(first, Map("default" -> 10L, "first" -> 7L)) { transaction =>
      for (i <- 0 until 10) transaction.put(key(0, i), bytes("v"))
      for (i <- 0 until 7) transaction.put(key(1, i), bytes("v"))
    }
    val second = before.removed("first").added("second", internal = false)
    expect(second.get("second").get.id == 1, "the id is another")
    batch(second, Map("default" -> 10L, "second" -> 3L)) { transaction =>
      removeAll(transaction)
      for (i <- 5 until 8) transaction.put(key(1, i), bytes("w"))
    }
    batch(before.removed("second").added("third", internal = false), Map("default" -> 9L, "third" -> 1L)) { transaction =>
      removeAll(transaction)
      transaction.put(key(1, 5), bytes("x"))
      transaction.remove(key(0, 0))
    }
    batch(before.removed("third"), Map("default" -> 9L))(removeAll)
  }

  private def whatIsSpilledTakesFewMappings(directory: File): Unit = withState(directory, 0) { (state, _) =>
    def mappings: Int = {
      val maps = scala.io.Source.fromFile("/proc/self/maps")
      try maps.getLines().count(_.contains(directory.getPath))
      finally maps.close()
    }
    var at = VersionId.empty
    for (batch <- 1 to 200) {
      val transaction = begin(state, at)
      for (i <- 0 until 3) transaction.put(bytes(s"\u0000\u0000$batch-$i"), bytes(s"value$batch-$i"))
      at = VersionId(batch.toLong, Some(s"id$batch"))
      transaction.committed(at)
      state.indexCommitted()
    }
    val spilled = state.memoryUse.spilledBytes
    expect(spilled >= 200 * (4 << 10), s"$spilled bytes of 200 batches are spilled")
    expect(mappings <= 100, s"200 small batches take $mappings mappings")
    val last = begin(state, at)
    for (batch <- 1 to 200; i <- 0 until 3) {
      expect(StateModel.text(last.get(bytes(s"\u0000\u0000$batch-$i"))) == s"value$batch-$i", s"row $i of batch $batch")
    }
    last.abort()
    state.close()
    expect(mappings == 0, s"$mappings mappings stay")
  }

  /** The memtable's table, the indexes, the orders and the filter need more than a file may have, and the budget has nothing. */
  private def tablesAreLargerThanAnyFile(directory: File): Unit =
    withState(directory, new StoreMemory(4 << 10, largestPieceBytes = 8 << 10, largestFileBytes = 8 << 10)) { (state, _) =>
      val n = 20000
      def key(i: Int): Array[Byte] = Array[Byte](0, 0, 1, 0, 0, 0, (i >> 13).toByte, (i >> 8).toByte, i.toByte)
      val all = Array[Byte](0, 0)
      def rows(transaction: Transaction, ordered: Boolean): Int = {
        val scan = transaction.scan(all, Array[Byte](0, 1), ordered)
        Iterator.continually(scan.advance()).takeWhile(identity).size
      }
      def check(transaction: Transaction, wanted: Int): Unit = {
        for (i <- 0 until n by 7) expect(StateModel.text(transaction.get(key(i))) == s"v$i", s"row $i is wrong")
        expect(rows(transaction, ordered = false) == wanted && rows(transaction, ordered = true) == wanted, "rows are missing")
        val prefix = transaction.scan(key(0).take(7), Array[Byte](0, 0, 1, 0, 0, 0, 1), ordered = false)
        expect(Iterator.continually(prefix.advance()).takeWhile(identity).nonEmpty, "a prefix has no rows")
        prefix.close()
        expect(transaction.keys == wanted, s"${transaction.keys} keys")
      }
      val first = begin(state, VersionId.empty)
      for (i <- 0 until n) first.put(key(i), bytes(s"v$i"))
      check(first, n)
      val delta = new File(directory, "pieces.sst")
      first.writeDelta(delta, bytes("{}"))
      TestBases.verify(delta, n + 1L, "{}")
      first.committed(VersionId(1, Some("id1")))
      for (batch <- 2 to 4) {
        state.indexCommitted()
        val next = begin(state, VersionId(batch - 1L, Some(s"id${batch - 1}")))
        next.put(bytes(s"\u0000\u0000more$batch"), bytes("v"))
        check(next, n + batch - 1)
        next.committed(VersionId(batch.toLong, Some(s"id$batch")))
      }
    }

  private def manyChangesNeedLittleHeap(directory: File): Unit =
    withState(directory, 512L << 20) { (state, memory) =>
      val n = 1500000
      def key(i: Int): Array[Byte] = Array[Byte](0, 0, (i >> 16).toByte, (i >> 8).toByte, i.toByte)
      val transaction = begin(state, VersionId.empty)
      for (i <- 0 until n) transaction.put(key(i), Array.emptyByteArray)
      val all = transaction.scan(key(0), key(n - 1), ordered = true)
      val used = memory.usedBytes
      expect(Iterator.continually(all.advance()).takeWhile(identity).size == n - 1, "changed rows are missing")
      expect(memory.usedBytes <= used - 8L * (n - 1), "a scan that has ended keeps its memory")
      transaction.scan(key(0), null, ordered = true).advance() // ends with the transaction
      val delta = new File(directory, "heap.sst")
      transaction.writeDelta(delta, bytes("{}"))
      TestBases.verify(delta, n + 1L, "{}")
      transaction.committed(VersionId(1, Some("a")))
      state.indexCommitted()
      val next = begin(state, VersionId(1, Some("a")))
      val scan = next.scan(key(0), key(n - 1), ordered = true)
      expect(Iterator.continually(scan.advance()).takeWhile(identity).size == n - 1, "rows are missing")
      next.abort()
    }

  /** What a batch read of the base, and did not change, is in its memory: a version that waits for the index has it there. */
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
      val reader = state.tryBegin(version(1), readOnly = true).get // so that what follows stays out of the index
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

  private def manyRowsOfOnePrefixCostNoMoreEach(directory: File): Unit = {
    def tookMs(n: Int): Long = {
      var took = 0L
      withState(directory, 256L << 20) { (state, _) =>
        val prefix = Array[Byte](0, 0, 4, 0, 0, 0, 1, 2, 3, 4)
        def key(i: Int): Array[Byte] = prefix ++ Array[Byte]((i >> 16).toByte, (i >> 8).toByte, i.toByte)
        val until = prefix.init :+ 5.toByte
        def scanned(transaction: Transaction): Int = {
          val scan = transaction.scan(prefix, until, ordered = false)
          Iterator.continually(scan.advance()).takeWhile(identity).size
        }
        took = cpuMs {
          val transaction = begin(state, VersionId.empty)
          transaction.put(key(0), bytes("v"))
          scanned(transaction)
          for (i <- 0 until n) transaction.put(key(i), bytes("v"))
          expect(scanned(transaction) == n, "rows are missing")
          for (i <- 0 until n by 2) transaction.remove(key(i))
          expect(scanned(transaction) == n / 2, "rows are missing or too many")
          transaction.committed(VersionId(1, Some("a")))
          state.indexCommitted()
          val next = begin(state, VersionId(1, Some("a")))
          expect(scanned(next) == n / 2, "rows are missing or too many")
          for (i <- 0 until n by 2) next.put(key(i), bytes("w"))
          next.committed(VersionId(2, Some("b")))
          state.indexCommitted()
          val last = begin(state, VersionId(2, Some("b")))
          expect(scanned(last) == n, "rows are missing")
          last.abort()
        }
      }
      took
    }
    tookMs(1000)
    val took = tookMs(40000)
    expect(took < 1500, s"40000 rows of one prefix took $took ms")
  }

  /** CPU time of this thread, which does not depend on what else the machine does. */
  private def cpuMs(action: => Unit): Long = {
    val threads = ManagementFactory.getThreadMXBean
    val startNs = threads.getCurrentThreadCpuTime
    action
    (threads.getCurrentThreadCpuTime - startNs) / 1000000
  }
}
