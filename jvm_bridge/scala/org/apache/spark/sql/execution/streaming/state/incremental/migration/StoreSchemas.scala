package org.apache.spark.sql.execution.streaming.state.incremental.migration

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

/**
 * A column family, as Spark describes it; `isList` is true if a key has several values.
 *
 * @param isInternal true if Spark keeps it for itself, in addition to the families that users see
 */
private[migration] final case class Family(
    name: String,
    keys: StructType,
    values: StructType,
    keySpec: KeyStateEncoderSpec,
    isList: Boolean,
    isInternal: Boolean) {
  def isDefault: Boolean = name == StateStore.DEFAULT_COL_FAMILY_NAME
}

/**
 * Spark's schemas of the rows of a store: of its column families, or of its only one.
 *
 * @param evolution all versions of the schemas, if rows name theirs
 */
private[migration] final case class StoreSchemas(
    operator: Long,
    store: String,
    families: Seq[Family],
    usesFamilies: Boolean,
    evolution: Option[StateSchemaProvider]) {

  /** Returns the default family, which stays empty if an operator has other families. */
  def default: Family = families.find(_.isDefault).getOrElse {
    val first = families.head
    first.copy(name = StateStore.DEFAULT_COL_FAMILY_NAME, keySpec = NoPrefixKeyStateEncoderSpec(first.keys))
  }

  def others: Seq[Family] = families.filterNot(_.isDefault)
}

private[migration] object StoreSchemas {
  /** Reads Spark's schema files, which the target checkpoint has already. */
  def read(target: Side, request: StoreRequest): StoreSchemas = {
    import request._
    val hadoop = target.hadoop
    val own = new Path(StateStoreId(target.stateRoot, operator, 0, name).storeCheckpointLocation(), "_metadata/schema")
    val read = newest(schemaFiles.lastOption.fold(own)(new Path(_)), hadoop)
    if (read.isEmpty) throw new MigrationException("missing", s"store $operator/$name has no schema")
    StoreSchemas(operator, name, read.map(family(_, request)), schemaFiles.nonEmpty,
      if (schemaFiles.isEmpty) None
      else Some(new InMemoryStateSchemaProvider(
        StateSchemaMetadata.createStateSchemaMetadata(target.stateRoot, hadoop, schemaFiles))))
  }

  private def newest(file: Path, hadoop: Configuration): Seq[StateStoreColFamilySchema] = {
    val in = file.getFileSystem(hadoop).open(file)
    try SchemaHelper.SchemaReader.createSchemaReader(in.readUTF()).read(in)
    finally in.close()
  }

  private def family(read: StateStoreColFamilySchema, request: StoreRequest): Family = {
    val spec = read.keyStateEncoderSpec.getOrElse(
      if (request.prefixColumns > 0) PrefixKeyScanStateEncoderSpec(read.keySchema, request.prefixColumns)
      else NoPrefixKeyStateEncoderSpec(read.keySchema))
    val name = read.colFamilyName
    Family(name, read.keySchema, read.valueSchema, spec, isList = request.lists.contains(name),
      isInternal = name.startsWith("$") || request.internal.contains(name))
  }
}
