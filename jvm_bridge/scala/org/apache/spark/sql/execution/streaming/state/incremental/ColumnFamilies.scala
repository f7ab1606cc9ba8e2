package org.apache.spark.sql.execution.streaming.state.incremental

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.execution.streaming.state.incremental.agent.Json
import org.apache.spark.unsafe.Platform

/**
 * A virtual column family.
 *
 * @param id       the 2-byte prefix of its keys, 0 for Spark's `default`
 * @param internal whether Spark made it for its own use: its keys are not among the rows that Spark shows
 * @param keys     how many keys it has at this version
 */
final case class ColumnFamily(id: Int, internal: Boolean, keys: Long)

/** The column families of one version of a store, by name; `default` is always among them. Immutable. */
final case class ColumnFamilies private (byName: Map[String, ColumnFamily]) {
  def get(name: String): Option[ColumnFamily] = byName.get(name)

  /** With one more, which gets the id above the highest in use; throws where 65534 of them exist. */
  def added(name: String, internal: Boolean): ColumnFamilies = {
    val id = byName.values.map(_.id).max + 1
    require(id < ColumnFamilies.Reserved, s"no column family id is left for '$name'")
    ColumnFamilies(byName + (name -> ColumnFamily(id, internal, keys = 0)))
  }

  def removed(name: String): ColumnFamilies = ColumnFamilies(byName - name)

  def count(internal: Boolean): Int = byName.values.count(_.internal == internal)

  def internalKeys: Long = byName.values.filter(_.internal).map(_.keys).sum

  /** With the numbers of keys after the changes of a transaction on this version. */
  def counted(transaction: Transaction): ColumnFamilies =
    if (byName.size == 1) {
      ColumnFamilies(byName.map { case (name, one) => name -> one.copy(keys = transaction.keys) })
    } else {
      val balance = ColumnFamilies.balance(transaction)
      ColumnFamilies(byName.map { case (name, one) =>
        name -> one.copy(keys = one.keys + (if (one.id < balance.length) balance(one.id) else 0L))
      })
    }

  /** As docs/format.md has them. */
  def toJson: ObjectNode =
    Json.obj(byName.toSeq.sortBy(_._2.id).map { case (name, family) =>
      name -> Json.obj("id" -> family.id, "internal" -> family.internal, "keys" -> family.keys)
    }: _*)
}

object ColumnFamilies {
  private val Reserved = 0xffff

  val Default: ColumnFamily = ColumnFamily(0, internal = false, keys = 0)

  val initial: ColumnFamilies = ColumnFamilies(Map(StateStore.DEFAULT_COL_FAMILY_NAME -> Default))

  def fromJson(node: JsonNode): ColumnFamilies = {
    val stored = node.properties.asScala.map { field =>
      val family = field.getValue
      field.getKey -> ColumnFamily(
        family.path("id").asInt, family.path("internal").asBoolean, family.path("keys").asLong)
    }
    ColumnFamilies(initial.byName ++ stored)
  }

  /** By how much a transaction changed the number of keys of each family, by id; none of those beyond. */
  private def balance(transaction: Transaction): Array[Long] = {
    transaction.keys // so that it is known of every changed key whether it was there
    var balance = new Array[Long](16)
    val overlay = transaction.overlay
    overlay.foreachSlot { slot =>
      if (overlay.isChange(slot)) {
        val record = overlay.record(slot)
        val key = Record.keyAddress(record)
        val id = (Platform.getByte(null, key) & 0xff) << 8 | Platform.getByte(null, key + 1) & 0xff
        val before = if ((Platform.getLong(null, slot) & Overlay.wasPresent) != 0) 1 else 0
        if (id >= balance.length) balance = java.util.Arrays.copyOf(balance, id + 1)
        balance(id) += (if (Record.isRemoved(record)) 0 else 1) - before
      }
    }
    balance
  }

  /** The first key that a family can have. */
  def from(id: Int): Array[Byte] = Array((id >>> 8).toByte, id.toByte)

  /** The first key after those of a family. */
  def until(id: Int): Array[Byte] = from(id + 1)
}
