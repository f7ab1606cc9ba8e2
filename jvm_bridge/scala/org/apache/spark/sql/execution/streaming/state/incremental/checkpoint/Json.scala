package org.apache.spark.sql.execution.streaming.state.incremental.checkpoint

import java.nio.charset.StandardCharsets

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.{ArrayNode, ObjectNode}

/** JSON as the bridge protocol and the checkpoint format use it: one object, UTF-8. Safe for any thread. */
object Json {
  private val mapper = new ObjectMapper()

  /** Returns an object with the fields; None and null become JSON null. */
  def obj(fields: (String, Any)*): ObjectNode = {
    val node = mapper.createObjectNode()
    fields.foreach { case (name, value) => put(node, name, value) }
    node
  }

  /** Returns an object with the fields that have a value: None and null are left out. */
  def present(fields: (String, Any)*): ObjectNode =
    obj(fields.filterNot { case (_, value) => value == null || value == None }: _*)

  /** Returns an array of nodes. */
  def array(items: Iterable[JsonNode]): JsonNode = {
    val node = mapper.createArrayNode()
    items.foreach(node.add)
    node
  }

  /** Returns an array of texts. */
  def texts(items: Iterable[String]): JsonNode = {
    val node = mapper.createArrayNode()
    items.foreach(item => node.add(item))
    node
  }

  /** Returns an array of numbers. */
  def numbers(items: Iterable[Double]): JsonNode = {
    val node = mapper.createArrayNode()
    items.foreach(item => node.add(item))
    node
  }

  /** Returns an array of texts, numbers and nulls; None becomes null. */
  def row(items: Iterable[Any]): ArrayNode = {
    val node = mapper.createArrayNode()
    def add(item: Any): Unit = item match {
      case null | None => node.addNull()
      case Some(inner) => add(inner)
      case text: String => node.add(text)
      case number: Int => node.add(number)
      case number: Long => node.add(number)
      case other => throw new IllegalArgumentException(s"no JSON for ${other.getClass}")
    }
    items.foreach(add)
    node
  }

  /** Returns an array of pairs of a number and an id, or null if the version has none. */
  def ofVersions(items: Iterable[VersionId]): JsonNode = {
    val node = mapper.createArrayNode()
    items.foreach(version => node.addArray().add(version.number).add(version.id.orNull))
    node
  }

  /** Reads an array of `ofVersions`. */
  def versions(node: JsonNode): Seq[VersionId] =
    node.elements.asScala.map(pair => VersionId(pair.get(0).asLong, Option(pair.get(1).textValue))).toSeq

  /**
   * Reads a JSON object.
   *
   * @throws java.io.IOException if the bytes are no JSON object
   */
  def parse(bytes: Array[Byte]): ObjectNode = mapper.readTree(bytes) match {
    case node: ObjectNode => node
    case _ => throw new java.io.IOException("expected a JSON object")
  }

  def parse(text: String): ObjectNode = parse(text.getBytes(StandardCharsets.UTF_8))

  def bytes(node: JsonNode): Array[Byte] = mapper.writeValueAsBytes(node)

  /** Returns the text of a field, or None if it is missing or null. */
  def text(node: JsonNode, field: String): Option[String] =
    Option(node.get(field)).filterNot(_.isNull).map(_.asText)

  private def put(node: ObjectNode, name: String, value: Any): Unit = value match {
    case null | None => node.putNull(name)
    case Some(inner) => put(node, name, inner)
    case text: String => node.put(name, text)
    case number: Int => node.put(name, number)
    case number: Long => node.put(name, number)
    case number: Double => node.put(name, number)
    case flag: Boolean => node.put(name, flag)
    case child: JsonNode => node.set[JsonNode](name, child)
    case map: Map[_, _] => node.set[JsonNode](name, obj(map.toSeq.map { case (k, v) => k.toString -> v }: _*))
    case other => throw new IllegalArgumentException(s"no JSON for ${other.getClass}")
  }
}
