package org.apache.spark.sql.execution.streaming.state.incremental.sst

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, Record}
import org.apache.spark.unsafe.Platform

/**
 * Goes through rows in key order. Key and value lie outside the heap and stay until the next move. Begins on
 * the first row, if there is one.
 */
private[incremental] abstract class Cursor {
  def valid: Boolean
  def keyAddress: Long
  def keyLength: Int
  def valueAddress: Long

  /** [[Record.removed]] for a removed key, where the source tells of those. */
  def valueLength: Int

  def next(): Unit
  def close(): Unit
}

/**
 * Goes through all entries of an SST, removals too, in key order. Begins before the first: [[seekToFirst]] or
 * [[seek]] it.
 */
private[incremental] final class SstCursor(table: SstTable) extends Cursor {
  private val entry = new VarintReader(0)
  private var block = 0
  private var blockStart = 0L
  private var end = 0L
  private var restartsEnd = 0L
  private var keyBuffer = 0L
  private var keyRoom = 0
  private val expansion = new Lz4Block

  var valid = false
  var keyAddress = 0L
  var keyLength = 0
  var valueAddress = 0L
  var valueLength = 0

  def seekToFirst(): Unit = {
    block = -1
    nextBlock()
  }

  /** Moves to the first entry whose key is not less. */
  def seek(key: Array[Byte]): Unit = {
    block = table.blockOf(key, Platform.BYTE_ARRAY_OFFSET, key.length) - 1
    if (enterBlock()) {
      entry.at = lastRestartNotAfter(key)
      keyLength = 0
      read()
    }
    while (valid && Bytes.compare(key, keyAddress, keyLength) > 0) next()
  }

  private def lastRestartNotAfter(key: Array[Byte]): Long = {
    var low = 0
    var high = restartCount - 1
    while (low < high) {
      val middle = (low + high + 1) >>> 1
      entry.at = restart(middle)
      entry.varint()
      val length = entry.varint().toInt - SstFormat.keyFooterBytes
      entry.varint()
      if (Bytes.compare(key, entry.at, length) >= 0) low = middle else high = middle - 1
    }
    restart(low)
  }

  private def restartCount: Int = Platform.getInt(null, restartsEnd) & 0x7fffffff
  private def restart(i: Int): Long = blockStart + (Platform.getInt(null, end + 4L * i) & 0xffffffffL)

  def next(): Unit = if (entry.at < end) read() else nextBlock()

  private def nextBlock(): Unit = if (enterBlock()) {
    entry.at = blockStart
    keyLength = 0
    read()
  }

  /** Moves into the next block; false when there is none. */
  private def enterBlock(): Boolean = {
    block += 1
    valid = block < table.blocks
    if (valid) {
      val handle = table.block(block)
      val start = table.blockAddress(handle)
      val kind = Platform.getByte(null, start + handle.bytes)
      if (kind == SstFormat.uncompressed) setBlock(start, handle.bytes)
      else if (kind == SstFormat.lz4) {
        val length = expansion.expand(start, handle.bytes.toInt)
        setBlock(expansion.at, length)
      }
      else throw new UnsupportedSstException(s"A block is compressed in a way ($kind) that is not supported")
    }
    valid
  }

  private def setBlock(start: Long, bytes: Long): Unit = {
    blockStart = start
    restartsEnd = start + bytes - 4
    end = restartsEnd - 4L * restartCount
  }

  /**
   * Reads an entry. What its key has in common with the one before counts the footers too, which may look
   * like the beginning of a longer key; so whole keys are kept, footers and all.
   */
  private def read(): Unit = {
    val shared = entry.varint().toInt
    val rest = entry.varint().toInt
    val bytes = entry.varint().toInt
    if (shared == 0) keyAddress = entry.at
    else joinKey(shared, rest)
    keyLength = shared + rest - SstFormat.keyFooterBytes
    valueAddress = entry.at + rest
    valueLength = if (Platform.getByte(null, keyAddress + keyLength) == SstFormat.removal) Record.removed else bytes
    entry.at = valueAddress + bytes
  }

  /** Puts together a key of which the first bytes are those of the one before. */
  private def joinKey(shared: Int, rest: Int): Unit = {
    if (shared + rest > keyRoom) growKey(shared + rest)
    if (keyAddress != keyBuffer) Platform.copyMemory(null, keyAddress, null, keyBuffer, shared)
    Platform.copyMemory(null, entry.at, null, keyBuffer + shared, rest)
    keyAddress = keyBuffer
  }

  private def growKey(bytes: Int): Unit = {
    val room = math.max(256, bytes * 2)
    val larger = Platform.allocateMemory(room)
    if (keyAddress == keyBuffer && keyBuffer != 0) {
      Platform.copyMemory(null, keyBuffer, null, larger, keyRoom)
      keyAddress = larger
    }
    if (keyBuffer != 0) Platform.freeMemory(keyBuffer)
    keyBuffer = larger
    keyRoom = room
  }

  def close(): Unit = {
    valid = false
    if (keyBuffer != 0) Platform.freeMemory(keyBuffer)
    keyBuffer = 0
    expansion.free()
  }
}
