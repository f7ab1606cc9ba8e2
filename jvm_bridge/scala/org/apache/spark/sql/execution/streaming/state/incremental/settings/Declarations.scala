package org.apache.spark.sql.execution.streaming.state.incremental.settings

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

/**
 * What the Python package declares for both planes: the options with their defaults and units, and the reserved
 * names of the format. The build packs it into the jar (`state_store/core/settings/declarations.py`). Immutable.
 */
object Declarations {
  private val Resource = "/incremental-state-store-declarations.json"

  private val root: JsonNode = {
    val in = getClass.getResourceAsStream(Resource)
    if (in == null) throw new IllegalStateException(s"the state store's jar is incomplete: it has no $Resource")
    try new ObjectMapper().readTree(in)
    finally in.close()
  }

  /** What the names of all options begin with in Spark's configuration. */
  val prefix: String = root.path("prefix").asText

  /** Key of the record that ends each delta. */
  val metaKey: Array[Byte] =
    root.path("meta_key").asText.grouped(2).map(Integer.parseInt(_, 16).toByte).toArray

  /** What reserved keys have in place of the id of a column family, in 2 bytes. */
  val reservedFamily: Int = root.path("reserved_family").asInt

  /** What a delta names as its parent that started from nothing. */
  val emptyParent: String = root.path("empty_parent").asText

  /** What answers and events call a merge that publishes nothing, and one that rewrites everything. */
  val ingestMerge: String = root.path("merge_kinds").path("ingest").asText
  val fullMerge: String = root.path("merge_kinds").path("full").asText

  /** What they call all kinds of merges. */
  val mergeKinds: Seq[String] = root.path("merge_kinds").elements.asScala.map(_.asText).toSeq

  /** Multipliers of the units that a size or a duration may have, by the name of the option's type. */
  private[settings] val units: Map[String, Map[String, Long]] =
    root.path("units").properties.asScala.map { kind =>
      kind.getKey -> kind.getValue.properties.asScala.map(unit => unit.getKey -> unit.getValue.asLong).toMap
    }.toMap

  private val options: Map[String, DeclaredOption] =
    root.path("options").properties.asScala.map { one =>
      val fields = one.getValue
      val least = Option(fields.get("least")).filterNot(_.isNull).map(_.asLong)
      one.getKey -> DeclaredOption(
        one.getKey, fields.path("type").asText, fields.path("default").asText, least, fields.path("meaning").asText)
    }.toMap

  /** The names of all options, without the prefix. */
  def optionNames: Seq[String] = options.keys.toSeq.sorted

  /** The option of that name, without the prefix. It must exist. */
  def option(name: String): DeclaredOption =
    options.getOrElse(name, throw new IllegalStateException(s"there is no option $prefix$name"))

  /** The key of an option in Spark's configuration. */
  def key(name: String): String = option(name).key
}

/**
 * An option as it is declared.
 *
 * @param name without the prefix
 * @param kind name of its type: `size`, `duration`, `boolean`, ...
 * @param default as a user would write it
 * @param least smallest value of a number, in bytes or milliseconds if it has a unit
 * @param meaning what the option does
 */
final case class DeclaredOption(name: String, kind: String, default: String, least: Option[Long], meaning: String) {
  def key: String = Declarations.prefix + name
}
