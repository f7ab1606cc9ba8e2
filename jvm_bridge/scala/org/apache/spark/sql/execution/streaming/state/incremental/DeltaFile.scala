package org.apache.spark.sql.execution.streaming.state.incremental

/**
 * A delta SST that was written.
 *
 * @param bytes   length of the file
 * @param crc32   CRC-32 (IEEE) of the whole file, 0 to 2^32 - 1
 * @param puts    records that put, the reserved record not counted
 * @param removes records that remove
 */
final case class DeltaFile(bytes: Long, crc32: Long, puts: Long, removes: Long)
