package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

/** Spark's encoders of rows. Before 4.2 they do not tell of their order, and one byte divides values. */
object Encoders {
  /** @param delimiterBytes how many bytes lie between the values of a key */
  def values(
      data: RocksDBDataEncoder,
      schema: StructType,
      multipleValues: Boolean,
      delimiterBytes: Int): RocksDBValueStateEncoder =
    RocksDBStateEncoder.getValueEncoder(data, schema, multipleValues)

  /** Whether keys are encoded so that their bytes have their order. */
  def scansRanges(keys: RocksDBKeyStateEncoder, spec: KeyStateEncoderSpec): Boolean =
    spec.isInstanceOf[RangeKeyScanStateEncoderSpec]

  def deletesRanges(keys: RocksDBKeyStateEncoder, spec: KeyStateEncoderSpec): Boolean =
    scansRanges(keys, spec)
}
