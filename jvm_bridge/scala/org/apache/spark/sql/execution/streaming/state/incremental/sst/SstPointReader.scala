package org.apache.spark.sql.execution.streaming.state.incremental.sst

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, OffHeap, Record}

/**
 * Looks up single keys in mapped SSTs. The value that was found lies in the mapped file, or until the next look-up in
 * memory of the reader. One thread.
 */
private[incremental] final class SstPointReader extends AutoCloseable {
  private val entry = new VarintReader(0)
  private val room = new SstRoom

  var valueAddress = 0L

  /** Length of the value in bytes; [[Record.removed]] if the entry removes the key. */
  var valueLength = 0

  /**
   * Looks for an entry of a key, and sets address and length of its value.
   *
   * @return true if the file has an entry of the key
   * @throws java.io.IOException if the file cannot be read or is damaged
   */
  def find(table: SstTable, key: Array[Byte]): Boolean = {
    val block = table.blockOf(key, OffHeap.arrayBase, key.length)
    block < table.blocks && {
      val handle = table.block(block)
      val start = table.content(block, handle, room, 0)
      val restartsEnd = start + handle.bytes - 4
      val end = table.restartsAt(start, restartsEnd)
      entry.at = lastRestartNotAfter(table, key, start, end, ((restartsEnd - end) >>> 2).toInt)
      scan(table, key, end)
    }
  }

  private def lastRestartNotAfter(
      table: SstTable, key: Array[Byte], start: Long, restartsAt: Long, restarts: Int): Long = {
    var low = 0
    var high = restarts - 1
    while (low < high) {
      val middle = (low + high + 1) >>> 1
      entry.at = restart(table, start, restartsAt, middle)
      entry.length()
      val length = entry.length() - SstFormat.keyFooterBytes
      entry.length()
      if (length < 0 || length > restartsAt - entry.at) table.changed(start)
      if (Bytes.compare(key, entry.at, length) >= 0) low = middle else high = middle - 1
    }
    restart(table, start, restartsAt, low)
  }

  private def restart(table: SstTable, start: Long, restartsAt: Long, i: Int): Long = {
    val at = start + (OffHeap.getInt(null, restartsAt + 4L * i) & 0xffffffffL)
    if (at >= restartsAt) table.changed(start)
    at
  }

  /**
   * Searches entries from a restart on. All entries before the key are less than it, so the number of bytes that an
   * entry shares with the one before decides about most of them without a look at their bytes. If the shared bytes
   * reach into the footer of the entry before, a cursor decides.
   */
  private def scan(table: SstTable, key: Array[Byte], end: Long): Boolean = {
    var common = 0
    var lengthBefore = 0
    while (entry.at < end) {
      val shared = entry.length()
      val rest = entry.length() - SstFormat.keyFooterBytes
      val bytes = entry.length()
      val at = entry.at
      if (shared > lengthBefore || rest < 0) return findByCursor(table, key)
      val next = at + rest + SstFormat.keyFooterBytes + bytes
      if (shared < 0 || bytes < 0 || next > end) table.changed(at)
      entry.at = next
      lengthBefore = shared + rest
      if (shared < common) return false
      if (shared == common) {
        val more = Bytes.common(key, common, at, rest)
        common += more
        if (more == rest && common == key.length) {
          valueAddress = at + rest + SstFormat.keyFooterBytes
          valueLength = table.valueLength(OffHeap.getByte(null, at + rest), bytes)
          return true
        }
        if (common == key.length) return false
        if (more < rest && (OffHeap.getByte(null, at + more) & 0xff) > (key(common) & 0xff)) return false
      }
    }
    false
  }

  private def findByCursor(table: SstTable, key: Array[Byte]): Boolean = {
    val cursor = new SstCursor(table, room)
    try {
      cursor.seek(key)
      valueAddress = cursor.valueAddress
      valueLength = cursor.valueLength
      cursor.valid && Bytes.compare(key, cursor.keyAddress, cursor.keyLength) == 0
    } finally cursor.close()
  }

  /** Takes blocks of sparse tables from memory from now on, as far as `lender` has them. */
  def borrow(lender: BlockLender): Unit = room.borrow(lender)

  /** Frees the memory. May be called repeatedly. */
  def close(): Unit = room.free()
}
