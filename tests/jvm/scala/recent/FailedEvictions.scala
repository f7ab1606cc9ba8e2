package org.apache.spark.sql.execution.streaming.state.incremental.recent

import java.io.File

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{MemoryShortage, Record, SlotHash, StoreMemory}

/**
 * Cases in which memory runs out while eviction makes room in it: the rows are still found, once, and all can be
 * evicted later.
 */
private[incremental] object FailedEvictions {
  private val keys = 200
  private val prefix = Array[Byte](0, 0, 1, 0, 0, 0, 7)
  private val until = Array[Byte](0, 0, 1, 0, 0, 0, 8)

  def loseNothing(directory: File): Unit =
    for (scanned <- Seq(false, true); saving <- Seq(false, true)) {
      var uses = 0
      while (failed(directory, scanned, saving, uses)) uses += 1
      expect(!saving || uses > keys / 2, s"memory was used $uses times")
    }

  private def expect(condition: Boolean, message: => String): Unit = if (!condition) throw new AssertionError(message)

  private def key(i: Int): Array[Byte] = prefix ++ Array[Byte]((i >> 8).toByte, i.toByte)

  private def generation(number: Int, changed: Seq[Int], memory: StoreMemory, directory: File): Generation = {
    val memtable = new MemTable(memory, directory, changed.length)
    changed.foreach { i =>
      memtable.change(0, SlotHash.of(key(i)), key(i), Array.fill(100)(number.toByte), 100, MemTable.wasAbsent, null)
    }
    new Generation(VersionId(number, Some(s"id$number")), keys, memtable)
  }

  /** Returns true if memory ran out after this number of uses. */
  private def failed(directory: File, scanned: Boolean, saving: Boolean, uses: Int): Boolean = {
    val memory = new StoreMemory(1L << 20)
    val rows = new IndexedGenerations(memory, directory)
    rows.publish(generation(1, 0 until keys, memory, directory))
    rows.publish(generation(2, 0 until keys by 2, memory, directory))
    rows.generationsInBase = 1
    if (scanned) check(rows)
    val failed = MemoryShortage.after(uses)(while (rows.evictable) rows.evict(saving))
    check(rows)
    while (rows.evictable) rows.evict(saving)
    expect(check(rows) == (0 until keys by 2).toSet, "rows that no base has are gone")
    rows.release()
    expect(memory.usedBytes == 0, s"${memory.usedBytes} bytes are still taken, for memory ran out after $uses uses")
    failed
  }

  /** Returns the keys that have rows, after comparing all ways of reading. */
  private def check(rows: IndexedGenerations): Set[Int] = {
    val found = (0 until keys).filter { i =>
      val record = rows.index.find(SlotHash.of(key(i)), key(i))
      expect(record == 0 || Record.value(record).head == (if (i % 2 == 0) 2 else 1), s"key $i has another value")
      record != 0
    }
    val walked = mutable.ArrayBuffer.empty[Int]
    rows.arenas.foreach { walk =>
      Iterator.continually(walk.next()).takeWhile(_ != 0).filter(rows.isNewest).foreach(walked += keyOf(_))
    }
    expect(walked.sorted == found, s"${walked.length} keys are walked over, ${found.length} are found")
    val sorted = mutable.ArrayBuffer.empty[Int]
    rows.ordered.sourcesIn(prefix, until, _ => true).foreach(_.foreach(sorted += keyOf(_)))
    expect(sorted.sorted == found, s"${sorted.length} keys are in order, ${found.length} are found")
    val together = mutable.ArrayBuffer.empty[Int]
    rows.ordered.foreachWith(prefix, until)(together += keyOf(_))
    expect(together.sorted == found, s"${together.length} keys are found by prefix, and ${found.length} by themselves")
    found.toSet
  }

  private def keyOf(record: Long): Int = {
    val key = Record.key(record)
    (key(key.length - 2) & 0xff) << 8 | key(key.length - 1) & 0xff
  }
}
