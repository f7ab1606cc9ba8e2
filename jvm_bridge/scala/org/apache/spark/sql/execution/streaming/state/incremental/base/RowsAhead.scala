package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.nio.ByteBuffer
import java.util.HashMap

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.incremental.sst.SstTable

/**
 * Rows of a base whose pages may be evicted, read before they are asked for. The missing blocks of many keys are fetched
 * in one call, and the rows are taken out of them at once, so that the blocks may leave the disk again. One thread.
 *
 * @param files the sparse files of the base
 * @param blocksOf passes each block that may have a key to a function
 * @param find returns the value of a key; null if the key is absent
 */
private[base] final class RowsAhead(
    files: RestoredFiles,
    blocksOf: (Array[Byte], (SstTable, Int) => Unit) => Unit,
    find: Array[Byte] => Array[Byte]) {
  import RowsAhead._

  private val rows = new HashMap[ByteBuffer, Array[Byte]]
  private var bytes = 0L

  /** Returns the value of a key that was read ahead, null if that key is absent in the base; None if it was not read. */
  def get(key: Array[Byte]): Option[Array[Byte]] =
    if (rows.isEmpty) None
    else {
      val found = rows.get(ByteBuffer.wrap(key))
      if (found == null) None else if (found eq absent) absentRow else Some(found)
    }

  /**
   * Reads the rows of keys, as many as memory allows. Keys that were read before are left out.
   *
   * @return the number of blocks that were fetched
   * @throws java.io.IOException as the read of a block does
   */
  def read(keys: Iterable[Array[Byte]]): Int = {
    if (bytes > maxBytes) forget()
    val unread = keys.iterator.filterNot(key => rows.containsKey(ByteBuffer.wrap(key))).toArray
    java.util.Arrays.sort(unread, (a: Array[Byte], b: Array[Byte]) => java.util.Arrays.compareUnsigned(a, b))
    var from = 0
    var fetched = 0
    while (from < unread.length && bytes <= maxBytes) {
      val missing = new MissingBlocks
      val waiting = mutable.ArrayBuffer.empty[Array[Byte]]
      while (from < unread.length && missing.bytes < files.pagesAtOnce) {
        val key = unread(from)
        // Blocks that are there are read before others take their room.
        if (missing.areFor(key)) waiting += key else keep(key, find(key))
        from += 1
      }
      fetched += missing.fetch()
      waiting.foreach(key => keep(key, find(key)))
      missing.giveBack()
    }
    fetched
  }

  private def keep(key: Array[Byte], value: Array[Byte]): Unit = {
    rows.put(ByteBuffer.wrap(key), if (value == null) absent else value)
    bytes += key.length + rowOverhead + (if (value == null) 0 else value.length)
  }

  /** Forgets all rows. */
  def forget(): Unit = {
    rows.clear()
    bytes = 0
  }

  /** Blocks that are not on the disk. */
  private final class MissingBlocks {
    private val looked = mutable.HashMap.empty[SstTable, mutable.HashMap[Int, Boolean]]
    private val found = mutable.ArrayBuffer.empty[(SstTable, Int)]

    /** Bytes of disk that the blocks take. */
    var bytes = 0L

    /** Adds the missing blocks of a key; returns true if there are any. */
    def areFor(key: Array[Byte]): Boolean = {
      var any = false
      blocksOf(key, (table, block) => any |= block < table.blocks && isMissing(table, block))
      any
    }

    private def isMissing(table: SstTable, block: Int): Boolean =
      looked.getOrElseUpdate(table, mutable.HashMap.empty).getOrElseUpdate(block, {
          val missing = table.isMissing(block)
          if (missing) {
            found += table -> block
            bytes += table.block(block).bytes + files.pageBytes
          }
          missing
        })

    /** Fetches the blocks; returns the number of them. */
    def fetch(): Int = {
      if (found.nonEmpty) files.fetchAll(found.iterator.map { case (table, block) =>
        val (offset, length) = table.rangeOf(block)
        (table.name, offset, length)
      }.toSeq)
      found.size
    }

    /** Gives the blocks up to eviction: they were read, and most of them are not read again soon. */
    def giveBack(): Unit = found.foreach { case (table, block) => table.forget(block) }
  }
}

private object RowsAhead {

  /** Bytes of rows above which no more are read. */
  private val maxBytes = 32L << 20

  /** Bytes of memory that a row takes besides its key and value. */
  private val rowOverhead = 160

  private val absent = new Array[Byte](0)
  private val absentRow = Some(null)
}
