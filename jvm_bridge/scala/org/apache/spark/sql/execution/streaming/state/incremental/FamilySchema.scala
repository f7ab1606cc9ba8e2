package org.apache.spark.sql.execution.streaming.state.incremental

import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec
import org.apache.spark.sql.types.StructType

/**
 * What Spark told of a column family: how its rows are encoded. Immutable.
 *
 * @param multipleValues whether a key has a list of values
 */
final case class FamilySchema(keySpec: KeyStateEncoderSpec, values: StructType, multipleValues: Boolean)
