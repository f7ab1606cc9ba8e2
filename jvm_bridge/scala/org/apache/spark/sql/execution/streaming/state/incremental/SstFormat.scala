package org.apache.spark.sql.execution.streaming.state.incremental

/** Numbers of RocksDB's block-based table format, format_version 5. */
private[incremental] object SstFormat {
  val magic: Long = 0x88e241b785f4cff7L
  val version = 5
  val footerBytes = 53

  /** Length of the trailer of a block: compression type, checksum. */
  val trailerBytes = 5
  val crc32c: Byte = 1
  val uncompressed: Byte = 0
  val lz4: Byte = 4

  /** What follows a key in a data block: sequence number (7 bytes) and kind. */
  val keyFooterBytes = 8
  val removal: Byte = 0
  val put: Byte = 1

  val filterName = "fullfilter.rocksdb.BuiltinBloomFilter"
  val propertiesName = "rocksdb.properties"

  /** The n-th block of superseded changes; RocksDB does not know the name and leaves the block alone. */
  def supersededName(n: Int): String = f"$supersededPrefix$n%06d"
  val supersededPrefix = "incremental.superseded."
  val comparatorName = "leveldb.BytewiseComparator"

  /** The form in which a CRC-32C is stored. */
  def masked(crc: Int): Int = Integer.rotateRight(crc, 15) + 0xa282ead8
}
