package org.apache.spark.sql.execution.streaming.state.incremental.migration

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json

/**
 * What to copy, as `state-store migrate` says it in one line (`state_store/data/migration/migrate.py`).
 *
 * @param hadoop settings of Hadoop, beside those that are found
 * @param version the number of the version that is copied, of all stores
 * @param threads how many stores are copied at the same time
 */
private[migration] final case class MigrationRequest(
    hadoop: Seq[(String, String)],
    source: SideRequest,
    target: SideRequest,
    version: Long,
    threads: Int,
    stores: Seq[StoreRequest])

/** One of the two state stores: the directory `state` of its checkpoint, and the configuration of its provider. */
private[migration] final case class SideRequest(stateRoot: String, conf: Seq[(String, String)])

/**
 * A store of an operator, with all of its partitions.
 *
 * @param prefixColumns how many columns of the key are its prefix, where Spark's schema does not say it
 * @param lists column families whose keys have several values
 * @param internal column families that Spark keeps for itself, beside those whose names say so
 * @param schemaFiles of its column families, the newest last; none where the store has its own file
 */
private[migration] final case class StoreRequest(
    operator: Long,
    name: String,
    prefixColumns: Int,
    lists: Set[String],
    internal: Set[String],
    schemaFiles: List[String],
    partitions: Seq[PartitionRequest])

/** One partition; `id` is that of the version in the source, None where it has none (checkpoint format 1). */
private[migration] final case class PartitionRequest(number: Int, id: Option[String])

private[migration] object MigrationRequest {
  /** Throws an IOException where the line is no JSON object, NoSuchElementException where a side does not say where. */
  def parse(line: String): MigrationRequest = {
    val fields = Json.parse(line)
    MigrationRequest(
      pairs(fields.path("hadoop")),
      side(fields.path("source")),
      side(fields.path("target")),
      fields.path("version").asLong,
      fields.path("threads").asInt(1),
      fields.path("stores").elements.asScala.map(store).toSeq)
  }

  private def side(node: JsonNode): SideRequest =
    SideRequest(Json.text(node, "state").get, pairs(node.path("conf")))

  private def store(node: JsonNode): StoreRequest =
    StoreRequest(
      node.path("operator").asLong,
      node.path("name").asText,
      node.path("prefix_columns").asInt,
      texts(node.path("lists")).toSet,
      texts(node.path("internal")).toSet,
      texts(node.path("schema_files")),
      node.path("partitions").elements.asScala
        .map(one => PartitionRequest(one.path("partition").asInt, Json.text(one, "id"))).toSeq)

  private def texts(node: JsonNode): List[String] = node.elements.asScala.map(_.asText).toList

  private def pairs(node: JsonNode): Seq[(String, String)] =
    node.properties.asScala.map(one => one.getKey -> one.getValue.asText).toSeq
}
