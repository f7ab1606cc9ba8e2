package org.apache.spark.sql.execution.streaming.state.incremental.delta

import java.io.File
import java.util.Locale

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Arena, Bytes, OffHeap, Record, StoreMemory}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.{SstBlockWriter, SstHandle, SstRoom, SstTable}

/**
 * Changes of a transaction that the last change of a key hides, in order of time: those that later changes of the
 * transaction replaced, and all from the first appended value on. The change feed shows them; no version needs them.
 * The first change takes memory. One thread at a time.
 */
private[incremental] final class OverwrittenChanges(memory: StoreMemory, spillDirectory: File) {
  private val arena = new Arena(memory, spillDirectory)
  private var hasAppended = false

  def bytes: Long = arena.bytes
  def spilledBytes: Long = arena.spilledBytes

  /** Keeps a copy of a record that will be replaced, or of a change of a key with appended values. */
  def add(record: Long): Unit = {
    val valueLength = Record.valueLength(record)
    val keyLength = Record.keyLength(record)
    val room = math.max(valueLength, 0)
    val copy = arena.allocate(Record.size(keyLength, room))
    Record.setHeader(copy, Record.hash(record), keyLength, valueLength, room)
    OffHeap.copyMemory(null, Record.keyAddress(record), null, Record.keyAddress(copy), keyLength.toLong + room)
  }

  /** Keeps a value that is appended to those of the record's key. */
  def addAppended(record: Long, value: Array[Byte]): Unit = {
    hasAppended = true
    val keyLength = Record.keyLength(record)
    val copy = arena.allocate(Record.size(keyLength, value.length))
    Record.setHeader(copy, Record.hash(record), keyLength, OverwrittenChanges.appended(value.length), value.length)
    OffHeap.copyMemory(null, Record.keyAddress(record), null, Record.keyAddress(copy), keyLength)
    Bytes.put(value, Record.valueAddress(copy))
  }

  /**
   * Writes the changes as blocks of their own, as docs/format.md describes.
   *
   * @return names and handles of the blocks; none if there is no change
   */
  def write(out: SstBlockWriter): Seq[(String, SstHandle)] = {
    val blocks = Seq.newBuilder[SstHandle]
    arena.foreach { record =>
      if (out.blockBytes >= OverwrittenChanges.blockBytes) blocks += out.endBlock()
      val keyLength = Record.keyLength(record)
      val valueLength = Record.valueLength(record)
      out.ensure(8)
      out.putInt(keyLength)
      out.putInt(valueLength)
      out.putBytes(null, Record.keyAddress(record), keyLength)
      out.putBytes(null, Record.valueAddress(record), OverwrittenChanges.bytesOf(valueLength))
    }
    if (out.blockBytes > 0) blocks += out.endBlock()
    val prefix = if (hasAppended) OverwrittenChanges.withAppended else OverwrittenChanges.withoutAppended
    blocks.result().zipWithIndex.map { case (handle, n) => OverwrittenChanges.blockName(prefix, n) -> handle }
  }

  def free(): Unit = arena.free()
}

private[incremental] object OverwrittenChanges {
  private val blockBytes = 256 << 10

  /** Prefixes of the blocks' names, without and with appended values. The first release cannot read appended values. */
  private val withoutAppended = "incremental.superseded."
  private val withAppended = "incremental.appended."

  /** Returns the name of the n-th block; RocksDB does not know the name and ignores the block. */
  private def blockName(prefix: String, n: Int): String = prefix + "%06d".formatLocal(Locale.ROOT, n)

  /**
   * Returns the number that stands for the length of an appended value. The function is its own inverse, and its
   * results are below [[Record.removed]].
   */
  private def appended(length: Int): Int = -2 - length

  private def bytesOf(valueLength: Int): Int =
    if (valueLength < Record.removed) appended(valueLength) else math.max(valueLength, 0)

  /**
   * Returns the changes that the last change of a key hides, in order of time.
   *
   * @param room memory for a block of the table
   */
  def in(table: SstTable, room: SstRoom): Iterator[Change] =
    (table.blocksNamed(withoutAppended) ++ table.blocksNamed(withAppended)).iterator
      .flatMap(block => changes(table, table.content(block, room), block.bytes))

  private def changes(table: SstTable, at: Long, bytes: Long): Iterator[Change] =
    new Iterator[Change] {
      private var nextAddress = at

      override def hasNext: Boolean = nextAddress < at + bytes

      override def next(): Change = {
        val left = at + bytes - nextAddress - 8
        if (left < 0) table.changed(at)
        val keyLength = OffHeap.getInt(null, nextAddress)
        val valueLength = OffHeap.getInt(null, nextAddress + 4)
        val valueBytes = bytesOf(valueLength)
        if (keyLength < 0 || keyLength.toLong + valueBytes > left) table.changed(at)
        val key = Bytes.array(nextAddress + 8, keyLength)
        val value = if (valueLength == Record.removed) null else Bytes.array(nextAddress + 8 + keyLength, valueBytes)
        nextAddress += 8L + keyLength + valueBytes
        Change(key, value, isAppended = valueLength < Record.removed)
      }
    }
}
