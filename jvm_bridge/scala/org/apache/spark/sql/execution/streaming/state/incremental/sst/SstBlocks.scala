package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.util.zip.CRC32C

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, OffHeap}

/** The blocks of a file, verified by their checksums. Any number of threads. */
private[sst] final class SstBlocks(source: SstFile) {

  /**
   * Reads a block, with its trailer, from the file.
   *
   * @throws DamagedSstException if its checksum is wrong or the file is too short
   * @throws UnsupportedSstException if it is compressed
   */
  def read(handle: SstHandle): Array[Byte] = {
    val block = source.read(handle.offset, handle.bytes + SstFormat.trailerBytes)
    verify(block, 0, handle)
    block
  }

  /**
   * Verifies a block in bytes that were read.
   *
   * @param from index in `content` at which the block begins
   * @throws DamagedSstException if its checksum is wrong
   * @throws UnsupportedSstException if it is compressed
   */
  def verify(content: Array[Byte], from: Int, handle: SstHandle): Unit = {
    if (!holds(content, from, handle)) {
      source.damaged(handle.offset, s"the checksum of the block of ${handle.bytes} bytes there is wrong")
    }
    source.require(content(from + handle.bytes) == SstFormat.uncompressed,
      s"the block at ${handle.offset} is compressed")
  }

  /** Returns true if the block that begins at that index matches its checksum. */
  def holds(content: Array[Byte], from: Int, handle: SstHandle): Boolean = SstChecksum.holds(content, from,
    handle.bytes)
}

/**
 * The masked CRC-32C that ends each block. It covers the content and the byte after it, the kind of compression. Any
 * number of threads.
 */
private[sst] object SstChecksum {

  /** Returns true if the footer of a file names this checksum. */
  def is(number: Byte): Boolean = number == SstFormat.crc32c

  /**
   * Returns true if the content of a block matches its checksum.
   *
   * @param from index in `bytes` at which the block begins
   * @param contentBytes bytes of its content, without the trailer
   */
  def holds(bytes: Array[Byte], from: Int, contentBytes: Int): Boolean = {
    val crc = new CRC32C
    crc.update(bytes, from, contentBytes + 1)
    SstFormat.masked(crc.getValue.toInt) ==
      OffHeap.getInt(bytes, OffHeap.arrayBase.toLong + from + contentBytes + 1)
  }
}

/** Blocks of tables in memory. */
private[incremental] trait BlockLender {

  /** Returns the block of that number with its trailer, which may be wrong; null if it is not there. */
  def block(table: SstTable, number: Int): Array[Byte]
}

private[incremental] object BlockLender {
  val none: BlockLender = (_, _) => null
}

/** Memory outside the heap for one block at a time. One thread. */
private[incremental] final class SstRoom {
  private var address = 0L
  private var room = 0
  private var lender: BlockLender = BlockLender.none

  /** Has blocks in memory that readers take rather than read them, from now on. */
  def borrow(from: BlockLender): Unit = lender = from

  /** Returns a block, with its trailer, that was read before but not verified; null if there is none. */
  def lent(table: SstTable, block: Int): Array[Byte] = lender.block(table, block)

  /**
   * Copies a block into the memory, over the block before.
   *
   * @return the address, valid until the next call or [[free]]
   */
  def put(block: Array[Byte]): Long = {
    if (block.length > room) {
      free()
      address = OffHeap.allocate(block.length)
      room = block.length
    }
    Bytes.put(block, address)
    address
  }

  /** Frees the memory. May be called repeatedly. */
  def free(): Unit = {
    if (address != 0) OffHeap.free(address)
    address = 0
    room = 0
  }
}
