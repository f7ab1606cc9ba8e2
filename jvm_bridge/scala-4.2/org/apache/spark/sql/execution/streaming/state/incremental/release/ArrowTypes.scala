package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.ArrowUtils

/** Arrow types of Spark's. */
object ArrowTypes {
  /** Throws where a type has none. */
  def check(schema: StructType, timeZoneId: String): Unit =
    ArrowUtils.toArrowSchema(schema, timeZoneId, largeVarTypes = false)

  /** Throws where a struct has two fields of one name. */
  def failDuplicatedFieldNames(schema: StructType): Unit = ArrowUtils.failDuplicatedFieldNames(schema)
}
