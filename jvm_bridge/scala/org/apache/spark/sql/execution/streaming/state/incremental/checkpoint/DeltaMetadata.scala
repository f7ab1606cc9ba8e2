package org.apache.spark.sql.execution.streaming.state.incremental.checkpoint

/**
 * The value of the reserved record, which ends every delta and is in every database: what the store looks like after
 * that batch (docs/format.md). Immutable.
 *
 * @param parent what the delta names as its parent
 * @param keys number of keys of the whole store; -1: the record does not say
 * @param puts how many records of the delta put, and how many remove
 * @param writer the program that wrote it
 */
final case class DeltaMetadata(
    version: VersionId,
    parent: String,
    keys: Long,
    puts: Long,
    removes: Long,
    families: ColumnFamilies,
    writer: String) {

  def toJson: Array[Byte] = Json.bytes(Json.obj(
    "format" -> CheckpointFormat.known, "version" -> version.number, "id" -> version.id, "parent" -> parent,
    "keys" -> keys, "puts" -> puts, "removes" -> removes, "column_families" -> families.toJson, "writer" -> writer))
}

object DeltaMetadata {
  /**
   * What is missing counts as -1, 0 or empty: the caller compares what it needs with what it knows.
   *
   * @param file what the record is from
   * @throws UnknownFormatException when it is of another format
   * @throws java.io.IOException when it is no JSON object, or does not say of which format it is
   */
  def parse(record: Array[Byte], file: String): DeltaMetadata = {
    val fields = Json.parse(record)
    CheckpointFormat.check(fields, file)
    DeltaMetadata(
      VersionId(fields.path("version").asLong(-1), Json.text(fields, "id")),
      Json.text(fields, "parent").orNull,
      fields.path("keys").asLong(-1),
      fields.path("puts").asLong,
      fields.path("removes").asLong,
      ColumnFamilies.fromJson(fields.path("column_families")),
      Json.text(fields, "writer").getOrElse(""))
  }
}
