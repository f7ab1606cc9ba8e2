package org.apache.spark.sql.execution.streaming.state.incremental.delta

import java.io.File
import java.util.Locale

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Arena, Bytes, OffHeap, Record, StoreMemory}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.{SstBlockWriter, SstHandle, SstRoom, SstTable}

/**
 * Changes of a transaction that later ones of the same transaction replaced, in order of time. The change
 * feed shows them; no version needs them. Takes memory with the first of them. One thread at a time.
 */
private[incremental] final class OverwrittenChanges(memory: StoreMemory, spillDirectory: File) {
  private val arena = new Arena(memory, spillDirectory)

  def bytes: Long = arena.bytes
  def spilledBytes: Long = arena.spilledBytes

  /** Keeps a copy of a record that is about to be replaced. */
  def add(record: Long): Unit = {
    val valueLength = Record.valueLength(record)
    val keyLength = Record.keyLength(record)
    val room = math.max(valueLength, 0)
    val copy = arena.allocate(Record.size(keyLength, room))
    Record.setHeader(copy, Record.hash(record), keyLength, valueLength, room)
    OffHeap.copyMemory(null, Record.keyAddress(record), null, Record.keyAddress(copy), keyLength.toLong + room)
  }

  /**
   * Writes them as blocks of their own, as docs/format.md describes. Returns the names and handles of these,
   * none where there is no change.
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
      out.putBytes(null, Record.valueAddress(record), math.max(valueLength, 0))
    }
    if (out.blockBytes > 0) blocks += out.endBlock()
    blocks.result().zipWithIndex.map { case (handle, n) => OverwrittenChanges.blockName(n) -> handle }
  }

  def free(): Unit = arena.free()
}

private[incremental] object OverwrittenChanges {
  private val blockBytes = 256 << 10
  private val namePrefix = "incremental.superseded."

  /** The n-th block; RocksDB does not know the name and leaves the block alone. */
  private def blockName(n: Int): String = namePrefix + "%06d".formatLocal(Locale.ROOT, n)

  /** Each key and value (null: removed) that a later change of the same delta replaced, in order of time. */
  def rows(table: SstTable, room: SstRoom): Iterator[(Array[Byte], Array[Byte])] =
    table.blocksNamed(namePrefix).iterator.flatMap(block => rows(table.content(block, room), block.bytes))

  /** Each key and value (null: removed) of a block. */
  private def rows(at: Long, bytes: Long): Iterator[(Array[Byte], Array[Byte])] =
    new Iterator[(Array[Byte], Array[Byte])] {
      private var nextAddress = at

      override def hasNext: Boolean = nextAddress < at + bytes

      override def next(): (Array[Byte], Array[Byte]) = {
        val keyLength = OffHeap.getInt(null, nextAddress)
        val valueLength = OffHeap.getInt(null, nextAddress + 4)
        val key = Bytes.array(nextAddress + 8, keyLength)
        val value =
          if (valueLength == Record.removed) null else Bytes.array(nextAddress + 8 + keyLength, valueLength)
        nextAddress += 8L + keyLength + math.max(valueLength, 0)
        (key, value)
      }
    }
}
