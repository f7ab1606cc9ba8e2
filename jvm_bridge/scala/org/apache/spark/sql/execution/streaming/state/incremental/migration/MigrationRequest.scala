package org.apache.spark.sql.execution.streaming.state.incremental.migration

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json.Fields

/**
 * The request of `state-store migrate`, one line of JSON (`state_store/data/migration.py`).
 *
 * @param hadoop settings of Hadoop, in addition to those of its configuration files
 * @param version number of the version to copy, of all stores
 * @param threads number of stores that are copied at the same time
 */
private[migration] final case class MigrationRequest(
    hadoop: Seq[(String, String)],
    source: SideRequest,
    target: SideRequest,
    version: Long,
    threads: Int,
    stores: Seq[StoreRequest])

/**
 * A side of the migration: the directory `state` of its checkpoint, and the configuration of its provider.
 *
 * @param pins what the offset log of the checkpoint says
 * @param conf what the session of the migration says; it goes before the pins
 */
private[migration] final case class SideRequest(
    stateRoot: String, pins: Seq[(String, String)], conf: Seq[(String, String)])

/**
 * A store of an operator, with all of its partitions.
 *
 * @param prefixColumns number of columns of the key that are its prefix, if Spark's schema does not name it
 * @param lists column families whose keys have several values
 * @param internal column families that Spark keeps for itself, in addition to those whose names say so
 * @param schemaFiles schema files of its column families, the newest last; none if the store has its own file
 */
private[migration] final case class StoreRequest(
    operator: Long,
    name: String,
    prefixColumns: Int,
    lists: Set[String],
    internal: Set[String],
    schemaFiles: List[String],
    partitions: Seq[PartitionRequest])

/** A partition; `id` is the id of the version in the source, None if it has none (checkpoint format 1). */
private[migration] final case class PartitionRequest(number: Int, id: Option[String])

private[migration] object MigrationRequest {
  /**
   * Reads a request.
   *
   * @throws java.io.IOException if the line is not a JSON object, or a field is missing
   */
  def parse(line: String): MigrationRequest = {
    val fields = Json.parse(line)
    MigrationRequest(
      pairs(fields, "hadoop"), side(fields.child("source")), side(fields.child("target")), fields.number("version"),
      fields.number("threads").toInt, fields.items("stores").map(store))
  }

  private def side(node: JsonNode): SideRequest =
    SideRequest(node.text("state"), pairs(node, "pins"), pairs(node, "conf"))

  private def store(node: JsonNode): StoreRequest =
    StoreRequest(
      node.number("operator"), node.text("name"), node.number("prefix_columns").toInt, node.texts("lists").toSet,
      node.texts("internal").toSet, node.texts("schema_files").toList,
      node.items("partitions").map(part => PartitionRequest(part.number("partition").toInt, part.ifText("id"))))

  private def pairs(node: JsonNode, field: String): Seq[(String, String)] =
    node.entries(field).map { case (name, value) => name -> value.asText }
}
