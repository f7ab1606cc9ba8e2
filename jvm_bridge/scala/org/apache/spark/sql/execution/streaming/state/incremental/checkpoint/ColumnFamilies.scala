package org.apache.spark.sql.execution.streaming.state.incremental.checkpoint

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.execution.streaming.state.StateStore

/**
 * A virtual column family.
 *
 * @param id       the 2-byte prefix of its keys, 0 for Spark's `default`
 * @param internal true if Spark made it for its own use: its keys are not among the rows that Spark shows
 * @param keys     number of its keys at this version
 */
final case class ColumnFamily(id: Int, internal: Boolean, keys: Long)

/** The column families of one version of a store, by name; `default` is always among them. Immutable. */
final case class ColumnFamilies private (byName: Map[String, ColumnFamily]) {
  def get(name: String): Option[ColumnFamily] = byName.get(name)

  /**
   * Returns these families and a new one, which gets the id above the highest in use.
   *
   * @throws java.lang.IllegalArgumentException if 65534 families exist
   */
  def added(name: String, internal: Boolean): ColumnFamilies = {
    val id = byName.values.map(_.id).max + 1
    require(id < Reserved.familyId, s"no column family id is left for '$name'")
    ColumnFamilies(byName + (name -> ColumnFamily(id, internal, keys = 0)))
  }

  def removed(name: String): ColumnFamilies = ColumnFamilies(byName - name)

  def count(internal: Boolean): Int = byName.values.count(_.internal == internal)

  def internalKeys: Long = byName.values.filter(_.internal).map(_.keys).sum

  /**
   * Returns these families with their numbers of keys after the changes of a transaction on a version.
   *
   * @param before the families of that version: one of these may have the id of another that was removed since
   * @param keys   number of keys of the whole store after the changes
   * @param growth by how many keys each family grew, by id (0 beyond its end); evaluated only if there is more than
   *               one family
   */
  def counted(before: ColumnFamilies, keys: Long, growth: => Array[Long]): ColumnFamilies =
    if (byName.size == 1) {
      ColumnFamilies(byName.map { case (name, family) => name -> family.copy(keys = keys) })
    } else {
      val byId = growth
      val known = before.byName.values.map(family => family.id -> family.keys).toMap.withDefaultValue(0L)
      val counts = byName.map { case (name, family) =>
        name -> (known(family.id) + (if (family.id < byId.length) byId(family.id) else 0L))
      }
      // A family whose count stays is the same object in all versions.
      ColumnFamilies(counts.foldLeft(byName) { case (families, (name, keys)) =>
        if (families(name).keys == keys) families else families + (name -> families(name).copy(keys = keys))
      })
    }

  /** Returns the families in the JSON of docs/format.md. */
  private[checkpoint] def toJson: ObjectNode =
    Json.obj(byName.toSeq.sortBy(_._2.id).map { case (name, family) =>
      name -> Json.obj("id" -> family.id, "internal" -> family.internal, "keys" -> family.keys)
    }: _*)
}

object ColumnFamilies {
  val Default: ColumnFamily = ColumnFamily(0, internal = false, keys = 0)

  val initial: ColumnFamilies = ColumnFamilies(Map(StateStore.DEFAULT_COL_FAMILY_NAME -> Default))

  private[checkpoint] def fromJson(node: JsonNode): ColumnFamilies = {
    val stored = node.properties.asScala.map { field =>
      val family = field.getValue
      field.getKey -> ColumnFamily(
        family.path("id").asInt, family.path("internal").asBoolean, family.path("keys").asLong)
    }
    ColumnFamilies(initial.byName ++ stored)
  }

  /** Returns the first key that a family can have. */
  def from(id: Int): Array[Byte] = Array((id >>> 8).toByte, id.toByte)

  /** Returns the first key after those of a family. */
  def until(id: Int): Array[Byte] = from(id + 1)
}
