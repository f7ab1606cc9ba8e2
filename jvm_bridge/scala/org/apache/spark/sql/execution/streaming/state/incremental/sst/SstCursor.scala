package org.apache.spark.sql.execution.streaming.state.incremental.sst

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, OffHeap, Record, RowSizes}

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

  /** How many removed keys it has passed so far, where it leaves them out and counts them. */
  def passed: Long = 0

  /** Whether it stands at a row whose key is less (null: at any row). */
  final def isBefore(until: Array[Byte]): Boolean = valid && (until == null || Bytes.compare(until, keyAddress, keyLength) > 0)
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

  /** Length of the key with its footer; 0 before the first of a block. */
  private var keyBytes = 0
  private val room = new SstRoom

  /** How many blocks behind the next it will probably want, too: more as it goes on. */
  private var ahead = 0

  var valid = false
  var keyAddress = 0L
  var keyLength = 0
  var valueAddress = 0L
  var valueLength = 0

  /** A copy of the key. */
  def key: Array[Byte] = Bytes.array(keyAddress, keyLength)

  def seekToFirst(): Unit = {
    if (block == SstCursor.closed) throw new IllegalStateException(s"A cursor over ${table.file} is closed")
    block = -1
    ahead = SstCursor.mostAhead
    nextBlock()
  }

  /** Moves to the first entry whose key is not less. */
  def seek(key: Array[Byte]): Unit = {
    block = table.blockOf(key, OffHeap.arrayBase, key.length) - 1
    ahead = 0
    if (enterBlock()) {
      entry.at = lastRestartNotAfter(key)
      keyBytes = 0
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
      entry.length()
      val length = entry.length() - SstFormat.keyFooterBytes
      entry.length()
      if (length < 0 || length > end - entry.at) table.changed(blockStart)
      if (Bytes.compare(key, entry.at, length) >= 0) low = middle else high = middle - 1
    }
    restart(low)
  }

  private def restartCount: Int = ((restartsEnd - end) >>> 2).toInt
  private def restart(i: Int): Long = {
    val at = blockStart + (OffHeap.getInt(null, end + 4L * i) & 0xffffffffL)
    if (at >= end) table.changed(blockStart)
    at
  }

  def next(): Unit = if (entry.at < end) read() else nextBlock()

  private def nextBlock(): Unit = if (enterBlock()) {
    entry.at = blockStart
    keyBytes = 0
    read()
  }

  /** Moves into the next block; false when there is none. */
  private def enterBlock(): Boolean = {
    if (block < -1) throw new IllegalStateException(s"A cursor over ${table.file} is closed")
    block += 1
    valid = false
    if (block < table.blocks) {
      val handle = table.block(block)
      blockStart = table.content(block, handle, room, ahead)
      ahead = math.min(2 * ahead + 1, SstCursor.mostAhead)
      restartsEnd = blockStart + handle.bytes - 4
      end = table.restartsAt(blockStart, restartsEnd)
      valid = true
    }
    valid
  }

  /**
   * Reads an entry. What its key has in common with the one before counts the footers too, which may look
   * like the beginning of a longer key; so whole keys are kept, footers and all.
   */
  private def read(): Unit = {
    val shared = entry.length()
    val rest = entry.length()
    val bytes = entry.length()
    if (isImpossible(shared, rest, bytes)) table.changed(blockStart)
    if (shared == 0) keyAddress = entry.at
    else joinKey(shared, rest)
    keyBytes = shared + rest
    keyLength = keyBytes - SstFormat.keyFooterBytes
    valueAddress = entry.at + rest
    valueLength = table.valueLength(OffHeap.getByte(null, keyAddress + keyLength), bytes)
    entry.at = valueAddress + bytes
  }

  private def isImpossible(shared: Int, rest: Int, bytes: Int): Boolean =
    shared < 0 || rest < 0 || bytes < 0 || shared > keyBytes || shared + rest < SstFormat.keyFooterBytes ||
      entry.at + rest + bytes > end

  /** Puts together a key of which the first bytes are those of the one before. */
  private def joinKey(shared: Int, rest: Int): Unit = {
    if (shared + rest > keyRoom) growKey(shared + rest)
    if (keyAddress != keyBuffer) OffHeap.copyMemory(null, keyAddress, null, keyBuffer, shared)
    OffHeap.copyMemory(null, entry.at, null, keyBuffer + shared, rest)
    keyAddress = keyBuffer
  }

  private def growKey(bytes: Int): Unit = {
    val room = math.max(256, RowSizes.doubled(bytes))
    val larger = OffHeap.allocate(room)
    if (keyAddress == keyBuffer && keyBuffer != 0) {
      OffHeap.copyMemory(null, keyBuffer, null, larger, keyRoom)
      keyAddress = larger
    }
    if (keyBuffer != 0) OffHeap.free(keyBuffer)
    keyBuffer = larger
    keyRoom = room
  }

  /** Any number of times. Who moves it afterwards gets an IllegalStateException. */
  def close(): Unit = {
    valid = false
    end = 0
    entry.at = 0
    block = SstCursor.closed
    if (keyBuffer != 0) OffHeap.free(keyBuffer)
    keyBuffer = 0
    keyRoom = 0
    room.free()
  }
}

private object SstCursor {
  private val mostAhead = 15
  private val closed = Int.MinValue
}
