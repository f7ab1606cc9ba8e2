package org.apache.spark.sql.execution.streaming.state.incremental.sst

import org.apache.spark.sql.execution.streaming.state.incremental.memory.OffHeap

/**
 * The place of a block in its file.
 *
 * @param offset first byte
 * @param bytes length without the trailer
 */
private[incremental] final case class SstHandle(offset: Long, bytes: Int)

/** Constants of RocksDB's block-based table format, format_version 5. */
private[sst] object SstFormat {
  val magic: Long = 0x88e241b785f4cff7L
  val version = 5
  val footerBytes = 53

  /** Length of the trailer of a block: the kind of compression and the checksum. */
  val trailerBytes = 5
  val crc32c: Byte = 1
  val uncompressed: Byte = 0

  /** Length of a key's footer in a data block: sequence number (7 bytes) and kind. */
  val keyFooterBytes = 8
  val removal: Byte = 0
  val put: Byte = 1

  val filterName = "fullfilter.rocksdb.BuiltinBloomFilter"
  val propertiesName = "rocksdb.properties"
  val comparatorName = "leveldb.BytewiseComparator"

  /** Returns a CRC-32C in the form in which files store it. */
  def masked(crc: Int): Int = Integer.rotateRight(crc, 15) + 0xa282ead8
}

/**
 * A reader of numbers from memory outside the heap. One thread.
 *
 * @param at address of the next byte
 */
private[sst] final class VarintReader(var at: Long) {

  /**
   * Reads a length: a number of up to 32 bits.
   *
   * @return a negative number if the bytes are no length
   */
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

  /**
   * Reads a number of up to 64 bits, seven in a byte, the lowest first.
   *
   * @throws java.io.IOException if the number has more than 64 bits
   */
  def varint(): Long = {
    var byte = OffHeap.getByte(null, at)
    at += 1
    if (byte >= 0) byte
    else {
      var value = byte & 0x7fL
      var shift = 7
      while (byte < 0) {
        if (shift > 63) throw new java.io.IOException("An SST block is damaged: a number has more than 64 bits")
        byte = OffHeap.getByte(null, at)
        at += 1
        value |= (byte & 0x7fL) << shift
        shift += 7
      }
      value
    }
  }
}
