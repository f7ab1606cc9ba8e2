package org.apache.spark.sql.execution.streaming.state.incremental.checkpoint

import java.io.IOException

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.execution.streaming.state.incremental.settings.Declarations

/**
 * The value of the reserved record, which ends every delta and is in every database: it describes the store after that
 * batch (docs/format.md). Immutable.
 *
 * @param parent the parent that the delta names
 * @param keys number of keys of the whole store; -1 if the record does not name it
 * @param puts number of records of the delta that put; `removes` is the number of those that remove
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
   * Reads a record. A missing field counts as -1, 0 or empty: the caller compares the fields that it needs.
   *
   * @param file name of the file that has the record
   * @throws UnknownFormatException if the record has another format
   * @throws java.io.IOException if the record is no JSON object, or names no format
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

/**
 * A delta SST file that was written.
 *
 * @param bytes   length of the file
 * @param crc32   CRC-32 (IEEE) of the whole file, 0 to 2^32 - 1
 * @param puts    number of records that put, the reserved record not counted
 * @param removes number of records that remove
 */
final case class DeltaFile(bytes: Long, crc32: Long, puts: Long, removes: Long)

/** The reserved keys: they follow those of all column families, and describe the file that has them. */
object Reserved {

  /** The 2 bytes in the place of the id of a column family. */
  val familyId: Int = Declarations.reservedFamily

  /** The first reserved key: all keys from here on are reserved. */
  val from: Array[Byte] = Array((familyId >> 8).toByte, familyId.toByte)

  /** The key of the record that describes a delta; it is greater than any other. */
  val metaKey: Array[Byte] = Declarations.metaKey
}

/**
 * The failure to read a file of a checkpoint in an unknown format, which another release wrote: the file is sound.
 *
 * @param file name of the file
 */
final class UnknownFormatException(val file: String, found: String)
    extends IOException(s"'$file' has checkpoint format $found, this program knows format ${CheckpointFormat.known}")

/** The format number that each file of a checkpoint has. */
private[checkpoint] object CheckpointFormat {

  /** The only format so far; a reader refuses any other. */
  val known: Int = 1

  /**
   * Checks the format of a file.
   *
   * @param fields the fields in which the file describes itself
   * @throws UnknownFormatException if the file has another format
   * @throws java.io.IOException if the file names no format
   */
  private[checkpoint] def check(fields: ObjectNode, file: String): Unit = {
    val found = fields.path("format")
    if (!found.isIntegralNumber) throw new IOException(s"'$file' does not name its format")
    if (found.asText != known.toString) throw new UnknownFormatException(file, found.asText)
  }
}
