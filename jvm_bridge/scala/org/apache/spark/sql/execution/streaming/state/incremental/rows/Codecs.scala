package org.apache.spark.sql.execution.streaming.state.incremental.rows

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.ColumnFamily
import org.apache.spark.sql.execution.streaming.state.incremental.release.Encoders
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec
import org.apache.spark.sql.types.StructType

/**
 * What Spark told of a column family: how its rows are encoded. Immutable.
 *
 * @param multipleValues whether a key has a list of values
 */
final case class FamilySchema(keySpec: KeyStateEncoderSpec, values: StructType, multipleValues: Boolean)

/**
 * Makes codecs. Spark's encoders reuse buffers, so each store gets its own.
 *
 * @param encoding "unsaferow" or "avro"
 */
final class Codecs(encoding: String, schemas: Option[StateSchemaProvider], columnFamilies: Boolean) {
  def make(name: String, family: ColumnFamily, schema: FamilySchema): RowCodec = {
    val avro = encoding == StateStoreEncoding.Avro.toString
    val data =
      if (avro) new AvroStateEncoder(schema.keySpec, schema.values, schemas, name)
      else new UnsafeRowDataEncoder(schema.keySpec, schema.values)
    new RowCodec(name, family, schema,
      RocksDBStateEncoder.getKeyEncoder(data, schema.keySpec, columnFamilies),
      Encoders.values(data, schema.values, schema.multipleValues, RowCodec.DelimiterBytes),
      isPlain = !avro)
  }
}
