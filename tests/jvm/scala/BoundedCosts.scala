package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.File
import java.lang.management.ManagementFactory
import java.util.concurrent.atomic.AtomicReference

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{KeyHash, StoreMemory}
import org.apache.spark.sql.execution.streaming.state.incremental.transaction.Transaction

/**
 * Cases of keys and batches that were chosen to be expensive: they take no more time, memory, stack or mappings than
 * allowed.
 */
object BoundedCosts extends StoreCases {
  val cases: Seq[(String, File => Unit)] = Seq(
    "flood" -> keysWithOneFilterHashAreNoSlower,
    "expectation" -> aLargeBatchDoesNotBurdenTheNext,
    "deep" -> keysThatBeginAllAlikeAreSorted,
    "prefix" -> manyRowsOfOnePrefixCostNoMoreEach,
    "small" -> fewRowsTakeLittleMemory,
    "pieces" -> tablesAreLargerThanAnyFile,
    "mappings" -> whatIsSpilledTakesFewMappings)

  /** Cases that run alone, in a JVM with a small heap. */
  val alone: Seq[(String, File => Unit)] = Seq(
    "heap" -> manyChangesNeedLittleHeap,
    "prefix heap" -> manyRowsOfOnePrefixNeedLittleHeap)

  /** Makes keys that collide: if half of a 16-byte lane is XXH3's public secret, the other half does not count. */
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
      expect(keys.map(KeyHash.of(_)).distinct.length == 1, "the keys do not collide")
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

  /**
   * Sorts keys of which each is the one before and 8 bytes more, so that sorting by 8 bytes at a time leaves a tie each
   * time.
   */
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

  /**
   * The memtable's table, the indexes, the orders and the filter need more than a file may have, and the budget has no
   * room.
   */
  private def tablesAreLargerThanAnyFile(directory: File): Unit =
    withState(directory, new StoreMemory(4 << 10, largestPieceBytes = 8 << 10, largestFileBytes = 8 << 10)) {
      (state, _) =>
        val n = 20000
        def key(i: Int): Array[Byte] = Array[Byte](0, 0, 1, 0, 0, 0, (i >> 13).toByte, (i >> 8).toByte, i.toByte)
        val all = Array[Byte](0, 0)
        def rows(transaction: Transaction, ordered: Boolean): Int = {
          val scan = transaction.scan(all, Array[Byte](0, 1), ordered)
          Iterator.continually(scan.advance()).takeWhile(identity).size
        }
        def check(transaction: Transaction, wanted: Int): Unit = {
          for (i <- 0 until n by 7) expect(StateModel.text(transaction.get(key(i))) == s"v$i", s"row $i is wrong")
          expect(rows(transaction, ordered = false) == wanted && rows(transaction, ordered = true) == wanted,
            "rows are missing")
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

  private def manyRowsOfOnePrefixNeedLittleHeap(directory: File): Unit =
    withState(directory, 512L << 20) { (state, memory) =>
      val n = 2500000
      val prefix = Array[Byte](0, 0, 4, 0, 0, 0, 1, 2, 3, 4)
      val until = prefix.init :+ 5.toByte
      def key(i: Int): Array[Byte] = prefix ++ Array[Byte]((i >> 16).toByte, (i >> 8).toByte, i.toByte)
      val first = begin(state, VersionId.empty)
      for (i <- 0 until n) first.put(key(i), Array.emptyByteArray)
      first.committed(VersionId(1, Some("a")))
      state.indexCommitted()
      val next = begin(state, VersionId(1, Some("a")))
      val scan = next.scan(prefix, until, ordered = true)
      val used = memory.usedBytes
      expect(Iterator.continually(scan.advance()).takeWhile(identity).size == n, "rows are missing")
      expect(memory.usedBytes <= used - 8L * (n - 1), "a scan that has ended keeps its memory")
      next.scan(prefix, until, ordered = true).advance() // ends with the transaction
      next.abort()
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

  /** Returns the CPU time of this thread for an action, which does not depend on other work of the machine. */
  private def cpuMs(action: => Unit): Long = {
    val threads = ManagementFactory.getThreadMXBean
    val startNs = threads.getCurrentThreadCpuTime
    action
    (threads.getCurrentThreadCpuTime - startNs) / 1000000
  }
}
