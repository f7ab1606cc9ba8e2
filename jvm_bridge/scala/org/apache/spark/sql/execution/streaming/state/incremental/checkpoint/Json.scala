package org.apache.spark.sql.execution.streaming.state.incremental.checkpoint

import java.io.IOException
import java.nio.charset.StandardCharsets

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.{ArrayNode, JsonNodeFactory, ObjectNode}

/**
 * JSON as the bridge protocol and the checkpoint format use it: one object, UTF-8. Safe for any thread.
 *
 * Objects are read as Jackson's trees, by [[Json.Fields]]: binding them to case classes (jackson-module-scala) costs each
 * JVM 0.8 s of CPU before the first message, on a task's path (docs/decisions/0136).
 */
object Json {
  private val mapper = new ObjectMapper()
  private val nodes = JsonNodeFactory.instance

  /** Returns an object with the fields; None and null become JSON null. */
  def obj(fields: (String, Any)*): ObjectNode = {
    val json = nodes.objectNode()
    fields.foreach { case (name, value) => json.set[JsonNode](name, node(value)) }
    json
  }

  /** Returns an object with the fields that have a value: None and null are left out. */
  def present(fields: (String, Any)*): ObjectNode =
    obj(fields.filterNot { case (_, value) => value == null || value == None }: _*)

  /** Returns an array of values; None and null become JSON null. */
  def array(items: Iterable[Any]): ArrayNode = {
    val json = nodes.arrayNode()
    items.foreach(item => json.add(node(item)))
    json
  }

  /** Returns an array of texts. */
  def texts(items: Iterable[String]): JsonNode = array(items)

  /** Returns an array of pairs of a number and an id, or null if the version has none. */
  def ofVersions(items: Iterable[VersionId]): JsonNode =
    array(items.map(version => array(Seq(version.number, version.id))))

  /**
   * Reads a JSON object.
   *
   * @throws java.io.IOException if the bytes are not a JSON object
   */
  def parse(bytes: Array[Byte]): ObjectNode = mapper.readTree(bytes) match {
    case node: ObjectNode => node
    case _ => throw new IOException("expected a JSON object")
  }

  def parse(text: String): ObjectNode = parse(text.getBytes(StandardCharsets.UTF_8))

  def bytes(node: JsonNode): Array[Byte] = mapper.writeValueAsBytes(node)

  /** Returns the text of a field, or None if it is missing or null. */
  def text(node: JsonNode, field: String): Option[String] = node.ifText(field)

  /**
   * The fields of an object that was read.
   *
   * Methods that begin with `if` return None for a field that is missing or null; all others throw
   * [[MissingFieldException]] for it, and for a field of another type.
   */
  implicit final class Fields(private val node: JsonNode) extends AnyVal {
    def ifText(field: String): Option[String] = Option(node.get(field)).filterNot(_.isNull).map(_.asText)

    def ifNumber(field: String): Option[Long] = Option(node.get(field)).filter(_.isNumber).map(_.asLong)

    def text(field: String): String = ifText(field).getOrElse(throw new MissingFieldException("text", field))

    def number(field: String): Long = ifNumber(field).getOrElse(throw new MissingFieldException("number", field))

    def flag(field: String): Boolean = needed("true or false", field)(_.isBoolean).booleanValue

    def child(field: String): JsonNode = needed("object", field)(_.isObject)

    def items(field: String): Seq[JsonNode] = needed("list", field)(_.isArray).elements.asScala.toSeq

    def texts(field: String): Seq[String] = items(field).map(_.asText)

    /** Returns the fields of the object in a field, by name, in their order. */
    def entries(field: String): Seq[(String, JsonNode)] =
      child(field).properties.asScala.map(entry => entry.getKey -> entry.getValue).toSeq

    /** Reads an array of [[ofVersions]]. */
    def versions(field: String): Seq[VersionId] =
      items(field).map(pair => VersionId(pair.path(0).asLong, Option(pair.path(1).textValue)))

    private def needed(kind: String, field: String)(isKind: JsonNode => Boolean): JsonNode =
      Option(node.get(field)).filter(isKind).getOrElse(throw new MissingFieldException(kind, field))
  }

  private def node(value: Any): JsonNode = value match {
    case null | None => nodes.nullNode
    case Some(inner) => node(inner)
    case text: String => nodes.textNode(text)
    case number: Int => nodes.numberNode(number)
    case number: Long => nodes.numberNode(number)
    case number: Double => nodes.numberNode(number)
    case flag: Boolean => nodes.booleanNode(flag)
    case child: JsonNode => child
    case map: Map[_, _] => obj(map.toSeq.map { case (k, v) => k.toString -> v }: _*)
    case other => throw new IllegalArgumentException(s"no JSON for ${other.getClass}")
  }
}

/** The failure to read an object that does not have a field, or has it with a value of another kind. */
final class MissingFieldException(kind: String, val field: String)
    extends IOException(s"no field '$field' with a $kind")
