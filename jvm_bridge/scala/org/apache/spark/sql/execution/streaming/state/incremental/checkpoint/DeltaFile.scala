package org.apache.spark.sql.execution.streaming.state.incremental.checkpoint

import org.apache.spark.sql.execution.streaming.state.incremental.settings.Declarations

/**
 * A delta SST that was written.
 *
 * @param bytes   length of the file
 * @param crc32   CRC-32 (IEEE) of the whole file, 0 to 2^32 - 1
 * @param puts    records that put, the reserved record not counted
 * @param removes records that remove
 */
final case class DeltaFile(bytes: Long, crc32: Long, puts: Long, removes: Long)

/** The keys that no column family has: they follow those of all families, and hold what a file says of itself. */
object Reserved {

  /** In place of the id of a column family. */
  val familyId: Int = Declarations.reservedFamily

  /** All keys from here on are reserved. */
  val from: Array[Byte] = Array((familyId >> 8).toByte, familyId.toByte)

  /** The key of the record that describes a delta; it is greater than any other. */
  val metaKey: Array[Byte] = Declarations.metaKey
}
