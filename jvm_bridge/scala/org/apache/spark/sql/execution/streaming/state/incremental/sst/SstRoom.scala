package org.apache.spark.sql.execution.streaming.state.incremental.sst

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, OffHeap}

/** Memory outside the heap for one block at a time. One thread. */
private[incremental] final class SstRoom {
  private var address = 0L
  private var room = 0

  /** Copies a block to it, instead of what was there. Returns the address. */
  def put(block: Array[Byte]): Long = {
    if (block.length > room) {
      free()
      address = OffHeap.allocate(block.length)
      room = block.length
    }
    Bytes.put(block, address)
    address
  }

  /** Any number of times. */
  def free(): Unit = {
    if (address != 0) OffHeap.free(address)
    address = 0
    room = 0
  }
}
