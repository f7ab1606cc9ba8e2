package org.apache.spark.sql.execution.streaming.state.incremental.sst

import org.apache.spark.sql.execution.streaming.state.incremental.memory.OffHeap

/** A place in a block, from which numbers are read. */
private[sst] final class VarintReader(var at: Long) {

  /** A length, negative where it is impossible: a number of up to 32 bits. */
  def length(): Int = {
    var byte = OffHeap.getByte(null, at)
    at += 1
    if (byte >= 0) byte
    else {
      var value = byte & 0x7f
      var shift = 7
      while (byte < 0) {
        if (shift > 28) return -1
        byte = OffHeap.getByte(null, at)
        at += 1
        value |= (byte & 0x7f) << shift
        shift += 7
      }
      value
    }
  }

  /** A number of up to 64 bits, seven in a byte, the lowest first. */
  def varint(): Long = {
    var byte = OffHeap.getByte(null, at)
    at += 1
    if (byte >= 0) byte
    else {
      var value = byte & 0x7fL
      var shift = 7
      while (byte < 0) {
        if (shift > 63) throw new java.io.IOException("An SST block is damaged: a number has no end")
        byte = OffHeap.getByte(null, at)
        at += 1
        value |= (byte & 0x7fL) << shift
        shift += 7
      }
      value
    }
  }
}
