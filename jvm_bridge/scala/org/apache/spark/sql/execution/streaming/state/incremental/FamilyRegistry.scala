package org.apache.spark.sql.execution.streaming.state.incremental

import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.ColumnFamily
import org.apache.spark.sql.execution.streaming.state.incremental.rows.{Codecs, FamilySchema, RowCodec}
import org.apache.spark.sql.types.{DataType, StructType}

/**
 * The column families that Spark registered with a provider: their schemas, and the rules for their names. For any
 * thread.
 *
 * @param several true if the store may have families other than `default`
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

  /** Names of the families whose keys are rows with columns of these types, encoded as a whole. */
  def withKeysOf(types: Seq[DataType]): Seq[String] = families.asScala.iterator.collect {
    case (name, FamilySchema(NoPrefixKeyStateEncoderSpec(schema), _, _)) if areTypes(schema, types) => name
  }.toSeq

  private def areTypes(schema: StructType, types: Seq[DataType]): Boolean =
    schema.length == types.length && schema.fields.zip(types).forall { case (column, kind) =>
      DataType.equalsIgnoreCompatibleNullability(kind, column.dataType)
    }

  def unregister(name: String): Unit = families.remove(name)

  /** Returns a new codec of a family; None if Spark has not registered the family. */
  def codec(name: String, family: ColumnFamily): Option[RowCodec] =
    Option(families.get(name)).map(codecs.make(name, family, _))

  /** Throws the error of Spark's stores if the family is not `default` and cannot be used. */
  def checkUse(operation: String, name: String): Unit =
    if (name != StateStore.DEFAULT_COL_FAMILY_NAME) {
      if (!several) throw disabled(operation)
      if (name.isEmpty || name.trim != name) {
        throw StateStoreErrors.cannotUseColumnFamilyWithInvalidName(operation, name)
      }
    }

  /** Throws the error of Spark's stores if the family cannot be made or removed. */
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
