package org.apache.spark.sql.execution.streaming.state.incremental.checkpoint

import java.io.IOException

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.execution.streaming.state.incremental.settings.Declarations

/**
 * A committed version of a store: its number, and the id of the attempt, which is Spark's state store checkpoint id or,
 * under checkpoint format 1, the store's own. The id is None if the number alone names the version. Version 0 is the
 * empty store.
 */
final case class VersionId(number: Long, id: Option[String])

object VersionId {
  val empty: VersionId = VersionId(0L, None)
}

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
    Seq("format" -> CheckpointFormat.number, "version" -> version.number, "id" -> version.id, "parent" -> parent,
      "keys" -> keys, "puts" -> puts, "removes" -> removes, "column_families" -> families.toJson) ++
      families.lastOfRemoved.map("last_family" -> _) :+ ("writer" -> writer): _*))
}

object DeltaMetadata {
  /**
   * Reads a record. A missing field counts as -1, 0 or empty: the caller compares the fields that it needs.
   *
   * @param file name of the file that has the record
   * @throws UnknownFormatException if the record has another format
   * @throws java.io.IOException if the record is not a JSON object, or names no format
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
      ColumnFamilies.fromJson(fields.path("column_families"), fields.path("last_family").asInt),
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
    extends IOException(s"'$file' has checkpoint format $found, this program knows format ${CheckpointFormat.number}")

/** The format number that each file of a checkpoint has. */
private[checkpoint] object CheckpointFormat {

  /** The only format so far; a reader refuses any other. */
  val number: Int = 1

  /**
   * Checks the format of a file.
   *
   * @param fields the fields in which the file describes itself
   * @throws UnknownFormatException if the file has another format
   * @throws java.io.IOException if the file names no format
   */
  private[checkpoint] def check(fields: ObjectNode, file: String): Unit = {
    val formatField = fields.path("format")
    if (!formatField.isIntegralNumber) throw new IOException(s"'$file' does not name its format")
    if (formatField.asText != number.toString) throw new UnknownFormatException(file, formatField.asText)
  }
}

/**
 * A virtual column family.
 *
 * @param id       the 2-byte prefix of its keys, 0 for Spark's `default`
 * @param internal true if Spark made it for its own use: its keys are not among the rows that Spark shows
 * @param keys     number of its keys at this version
 */
final case class ColumnFamily(id: Int, internal: Boolean, keys: Long)

/**
 * The column families of one version of a store, by name; `default` is always among them. Immutable.
 *
 * @param lastId the highest id that a family had, of these or of those that were removed
 */
final case class ColumnFamilies private (byName: Map[String, ColumnFamily], lastId: Int) {
  def get(name: String): Option[ColumnFamily] = byName.get(name)

  /**
   * Returns these families and a new one, which gets an id that none has had: older deltas have the changes of removed
   * families under their ids.
   *
   * @throws java.lang.IllegalArgumentException if 65534 families were made
   */
  def added(name: String, internal: Boolean): ColumnFamilies = {
    val id = lastId + 1
    require(id < Reserved.familyId, s"no column family id is left for '$name'")
    ColumnFamilies(byName + (name -> ColumnFamily(id, internal, keys = 0)), id)
  }

  def removed(name: String): ColumnFamilies = ColumnFamilies(byName - name, lastId)

  /** Returns the highest id that a family had, if that one was removed. */
  private[checkpoint] def lastOfRemoved: Option[Int] = Option.when(byName.values.forall(_.id < lastId))(lastId)

  def count(internal: Boolean): Int = byName.values.count(_.internal == internal)

  def internalKeys: Long = byName.values.filter(_.internal).map(_.keys).sum

  /**
   * Returns these families with their numbers of keys after the changes of a transaction on a version.
   *
   * @param before the families of that version
   * @param keys   number of keys of the whole store after the changes
   * @param growth by how many keys each family grew, by id (0 beyond its end); evaluated only if there is more than
   *               one family
   */
  def counted(before: ColumnFamilies, keys: Long, growth: => Array[Long]): ColumnFamilies =
    if (byName.size == 1) {
      ColumnFamilies(byName.map { case (name, family) => name -> family.copy(keys = keys) }, lastId)
    } else {
      val byId = growth
      val keysById = before.byName.values.map(family => family.id -> family.keys).toMap.withDefaultValue(0L)
      val counts = byName.map { case (name, family) =>
        name -> (keysById(family.id) + (if (family.id < byId.length) byId(family.id) else 0L))
      }
      // A family whose count stays is the same object in all versions.
      val counted = counts.foldLeft(byName) { case (families, (name, keys)) =>
        if (families(name).keys == keys) families else families + (name -> families(name).copy(keys = keys))
      }
      ColumnFamilies(counted, lastId)
    }

  /** Returns the families in the JSON of docs/format.md. */
  private[checkpoint] def toJson: ObjectNode =
    Json.obj(byName.toSeq.sortBy(_._2.id).map { case (name, family) =>
      name -> Json.obj("id" -> family.id, "internal" -> family.internal, "keys" -> family.keys)
    }: _*)
}

object ColumnFamilies {
  val Default: ColumnFamily = ColumnFamily(0, internal = false, keys = 0)

  val initial: ColumnFamilies = ColumnFamilies(Map(StateStore.DEFAULT_COL_FAMILY_NAME -> Default), Default.id)

  /** @param last the highest id that a family had, if that one was removed; else any lower number */
  private[checkpoint] def fromJson(node: JsonNode, last: Int): ColumnFamilies = {
    val stored = node.properties.asScala.map { field =>
      val family = field.getValue
      field.getKey -> ColumnFamily(
        family.path("id").asInt, family.path("internal").asBoolean, family.path("keys").asLong)
    }
    val byName = initial.byName ++ stored
    ColumnFamilies(byName, math.max(last, byName.values.map(_.id).max))
  }

  /** Returns the first key that a family can have. */
  def from(id: Int): Array[Byte] = Array((id >>> 8).toByte, id.toByte)

  /** Returns the first key after those of a family. */
  def until(id: Int): Array[Byte] = from(id + 1)
}
