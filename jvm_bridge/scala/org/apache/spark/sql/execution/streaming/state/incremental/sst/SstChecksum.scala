package org.apache.spark.sql.execution.streaming.state.incremental.sst

import org.apache.spark.sql.execution.streaming.state.incremental.memory.OffHeap

import java.util.zip.CRC32C

/**
 * The checksum that ends each block: over the content and the byte after it, its kind of compression. Which it is,
 * the file's footer says. Any number of threads.
 */
private[sst] sealed abstract class SstChecksum {

  /** Whether a block, its content of this many bytes with the trailer, begins at that index of an array. */
  final def holds(bytes: Array[Byte], from: Int, contentBytes: Int): Boolean =
    of(bytes, from, contentBytes) == OffHeap.getInt(bytes, OffHeap.arrayBase.toLong + from + contentBytes + 1)

  protected def of(bytes: Array[Byte], from: Int, contentBytes: Int): Int
}

private[sst] object SstChecksum {

  /** The one of that number in a footer; None where it is not supported. */
  def apply(number: Byte): Option[SstChecksum] = number match {
    case SstFormat.crc32c => Some(MaskedCrc32c)
    case SstFormat.xxh3 => Some(FoldedXxh3)
    case _ => None
  }

  private object MaskedCrc32c extends SstChecksum {
    protected def of(bytes: Array[Byte], from: Int, contentBytes: Int): Int = {
      val crc = new CRC32C
      crc.update(bytes, from, contentBytes + 1)
      SstFormat.masked(crc.getValue.toInt)
    }
  }

  private object FoldedXxh3 extends SstChecksum {
    private val lastByteFactor = 0x6b9083d9

    protected def of(bytes: Array[Byte], from: Int, contentBytes: Int): Int =
      BlockHash.of(bytes, from, contentBytes).toInt ^ (bytes(from + contentBytes) & 0xff) * lastByteFactor
  }
}
