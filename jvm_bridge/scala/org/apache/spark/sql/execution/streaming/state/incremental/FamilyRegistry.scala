package org.apache.spark.sql.execution.streaming.state.incremental

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.ColumnFamily
import org.apache.spark.sql.execution.streaming.state.incremental.rows.{Codecs, FamilySchema, RowCodec}

/**
 * What Spark told a provider of the column families of its store: their schemas, and which names may be used. Any thread.
 *
 * @param several whether there are others than `default`
 */
private[incremental] final class FamilyRegistry(
    codecs: Codecs,
    schemas: Option[StateSchemaProvider],
    val several: Boolean) {
  private val families = new ConcurrentHashMap[String, FamilySchema]

  def register(name: String, schema: FamilySchema): Unit = {
    schemas.foreach {
      case tests: TestStateSchemaProvider =>
        tests.captureSchema(name, schema.keySpec.keySchema, schema.values)
      case _ =>
    }
    families.put(name, schema)
  }

  def unregister(name: String): Unit = families.remove(name)

  /** A new codec of a family; None where Spark has told nothing of it. */
  def codec(name: String, family: ColumnFamily): Option[RowCodec] =
    Option(families.get(name)).map(codecs.make(name, family, _))

  /** Throws as Spark's stores do where a family other than `default` cannot be used. */
  def checkUse(operation: String, name: String): Unit =
    if (name != StateStore.DEFAULT_COL_FAMILY_NAME) {
      if (!several) throw disabled(operation)
      if (name.isEmpty || name.trim != name) {
        throw StateStoreErrors.cannotUseColumnFamilyWithInvalidName(operation, name)
      }
    }

  /** Throws as Spark's stores do where a family cannot be made or removed. */
  def checkName(operation: String, name: String, isInternal: Boolean): Unit = {
    if (!several) throw disabled(operation)
    if (name.isEmpty || name.trim != name || (name == StateStore.DEFAULT_COL_FAMILY_NAME && !isInternal)) {
      throw StateStoreErrors.cannotUseColumnFamilyWithInvalidName(operation, name)
    }
    if (!isInternal && name.charAt(0) == '$') {
      throw StateStoreErrors.cannotCreateColumnFamilyWithReservedChars(name)
    }
  }

  private def disabled(operation: String): Throwable = StateStoreErrors.unsupportedOperationException(
    operation, "multiple column families is disabled in IncrementalStateStoreProvider")
}
