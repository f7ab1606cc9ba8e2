package org.apache.spark.sql.execution.streaming.state.incremental

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.execution.streaming.state.incremental.agent.Json

/**
 * A virtual column family.
 *
 * @param id       the 2-byte prefix of its keys, 0 for Spark's `default`
 * @param internal whether Spark made it for its own use: its keys are not among the rows that Spark shows
 */
final case class ColumnFamily(id: Int, internal: Boolean)

/** The column families of one version of a store, by name; `default` is always among them. Immutable. */
final case class ColumnFamilies private (byName: Map[String, ColumnFamily]) {
  def get(name: String): Option[ColumnFamily] = byName.get(name)

  /** With one more, which gets the id above the highest in use; throws where 65534 of them exist. */
  def added(name: String, internal: Boolean): ColumnFamilies = {
    val id = byName.values.map(_.id).max + 1
    require(id < ColumnFamilies.Reserved, s"no column family id is left for '$name'")
    ColumnFamilies(byName + (name -> ColumnFamily(id, internal)))
  }

  def removed(name: String): ColumnFamilies = ColumnFamilies(byName - name)

  def count(internal: Boolean): Int = byName.values.count(_.internal == internal)

  /** As docs/format.md has them, with the number of keys of each. */
  def toJson(keys: ColumnFamily => Long): ObjectNode =
    Json.obj(byName.toSeq.sortBy(_._2.id).map { case (name, family) =>
      name -> Json.obj("id" -> family.id, "internal" -> family.internal, "keys" -> keys(family))
    }: _*)
}

object ColumnFamilies {
  private val Reserved = 0xffff

  val Default: ColumnFamily = ColumnFamily(0, internal = false)

  val initial: ColumnFamilies = ColumnFamilies(Map(StateStore.DEFAULT_COL_FAMILY_NAME -> Default))

  def fromJson(node: JsonNode): ColumnFamilies = {
    val stored = node.properties.asScala.map { field =>
      field.getKey -> ColumnFamily(field.getValue.path("id").asInt, field.getValue.path("internal").asBoolean)
    }
    ColumnFamilies(initial.byName ++ stored)
  }

  /** Keys of each family, by id, as they stand in the same JSON. */
  def keysFromJson(node: JsonNode): Map[Int, Long] =
    node.elements.asScala.map(family => family.path("id").asInt -> family.path("keys").asLong).toMap

  /** The first key that a family can have. */
  def from(id: Int): Array[Byte] = Array((id >>> 8).toByte, id.toByte)

  /** The first key after those of a family. */
  def until(id: Int): Array[Byte] = from(id + 1)
}
