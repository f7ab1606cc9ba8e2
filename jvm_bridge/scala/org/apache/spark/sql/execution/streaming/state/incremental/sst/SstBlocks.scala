package org.apache.spark.sql.execution.streaming.state.incremental.sst

/** The blocks of a file, verified by their checksums. Any number of threads. */
private[sst] final class SstBlocks(source: SstFile) {

  /**
   * A block with its trailer.
   *
   * @throws DamagedSstException when its checksum is wrong
   */
  def read(handle: SstHandle): Array[Byte] = {
    val block = source.read(handle.offset, handle.bytes + SstFormat.trailerBytes)
    verify(block, 0, handle)
    block
  }

  /** Throws when the block that begins at that index of what was read is damaged, or compressed. */
  def verify(content: Array[Byte], from: Int, handle: SstHandle): Unit = {
    if (!holds(content, from, handle)) {
      source.damaged(handle.offset, s"the checksum of the block of ${handle.bytes} bytes there is wrong")
    }
    source.require(content(from + handle.bytes) == SstFormat.uncompressed, s"the block at ${handle.offset} is compressed")
  }

  /** Whether the checksum of the block that begins at that index is right. */
  def holds(content: Array[Byte], from: Int, handle: SstHandle): Boolean = SstChecksum.holds(content, from, handle.bytes)
}
