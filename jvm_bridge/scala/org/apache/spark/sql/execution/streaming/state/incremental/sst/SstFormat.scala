package org.apache.spark.sql.execution.streaming.state.incremental.sst

/** Where a block is in its file, its trailer not counted. */
private[incremental] final case class SstHandle(offset: Long, bytes: Int)

/** Numbers of RocksDB's block-based table format, format_version 5. */
private[sst] object SstFormat {
  val magic: Long = 0x88e241b785f4cff7L
  val version = 5
  val footerBytes = 53

  /** Length of the trailer of a block: compression type, checksum. */
  val trailerBytes = 5
  val crc32c: Byte = 1
  val uncompressed: Byte = 0

  /** What follows a key in a data block: sequence number (7 bytes) and kind. */
  val keyFooterBytes = 8
  val removal: Byte = 0
  val put: Byte = 1

  val filterName = "fullfilter.rocksdb.BuiltinBloomFilter"
  val propertiesName = "rocksdb.properties"
  val comparatorName = "leveldb.BytewiseComparator"

  /** The form in which a CRC-32C is stored. */
  def masked(crc: Int): Int = Integer.rotateRight(crc, 15) + 0xa282ead8
}
