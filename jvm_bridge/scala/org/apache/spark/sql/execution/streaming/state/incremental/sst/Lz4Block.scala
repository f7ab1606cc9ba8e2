package org.apache.spark.sql.execution.streaming.state.incremental.sst

import net.jpountz.lz4.LZ4Factory
import org.apache.spark.sql.execution.streaming.state.incremental.memory.Bytes
import org.apache.spark.unsafe.Platform

/** Memory outside the heap for a block that was stored compressed; one block at a time. One thread. */
private[sst] final class Lz4Block {
  private var address = 0L
  private var room = 0

  /** Expands a block compressed with LZ4 (its length when expanded stands first); the length. */
  def expand(start: Long, bytes: Int): Int = {
    val header = new VarintReader(start)
    val length = Math.toIntExact(header.varint())
    val rest = bytes - (header.at - start).toInt
    val content = new Array[Byte](length)
    LZ4Factory.fastestInstance.safeDecompressor.decompress(Bytes.array(header.at, rest), 0, rest, content, 0, length)
    if (length > room) {
      free()
      address = Platform.allocateMemory(length)
      room = length
    }
    Bytes.put(content, address)
    length
  }

  /** Where the block is. */
  def at: Long = address

  def free(): Unit = {
    if (address != 0) Platform.freeMemory(address)
    address = 0
    room = 0
  }
}
