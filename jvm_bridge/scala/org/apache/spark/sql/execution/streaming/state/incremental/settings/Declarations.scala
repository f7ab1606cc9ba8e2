package org.apache.spark.sql.execution.streaming.state.incremental.settings

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

/**
 * Declarations of the Python package for both planes: the options with their defaults and units, and the reserved
 * names of the format. The build packs them into the jar (`state_store/core/settings/option_pages.py`). Immutable.
 */
object Declarations {
  private val Resource = "/incremental-state-store-declarations.json"

  private val root: JsonNode = {
    val in = getClass.getResourceAsStream(Resource)
    if (in == null) throw new IllegalStateException(s"the state store's jar is incomplete: it has no $Resource")
    try new ObjectMapper().readTree(in)
    finally in.close()
  }

  /** The prefix of all options in Spark's configuration. */
  val prefix: String = root.path("prefix").asText

  /** Key of the record that ends each delta. */
  val metaKey: Array[Byte] =
    root.path("meta_key").asText.grouped(2).map(Integer.parseInt(_, 16).toByte).toArray

  /** The 2 bytes of reserved keys that stand in the place of the id of a column family. */
  val reservedFamily: Int = root.path("reserved_family").asInt

  /** The parent that a delta names if it started from nothing. */
  val emptyParent: String = root.path("empty_parent").asText

  /** The kinds, in answers and events, of a merge that publishes nothing, and of one that rewrites everything. */
  val ingestMerge: String = root.path("merge_kinds").path("ingest").asText
  val fullMerge: String = root.path("merge_kinds").path("full").asText

  /** All kinds of merges. */
  val mergeKinds: Seq[String] = root.path("merge_kinds").elements.asScala.map(_.asText).toSeq

  /** Multipliers of the units that a size or a duration may have, by the name of the option's type. */
  private[settings] val units: Map[String, Map[String, Long]] =
    root.path("units").properties.asScala.map { kind =>
      kind.getKey -> kind.getValue.properties.asScala.map(unit => unit.getKey -> unit.getValue.asLong).toMap
    }.toMap

  private val options: Map[String, DeclaredOption] =
    root.path("options").properties.asScala.map { declared =>
      val fields = declared.getValue
      val least = Option(fields.get("least")).filterNot(_.isNull).map(_.asLong)
      declared.getKey -> DeclaredOption(
        declared.getKey, fields.path("type").asText, fields.path("default").asText, least,
        fields.path("meaning").asText)
    }.toMap

  /** Returns the names of all options, without the prefix. */
  def optionNames: Seq[String] = options.keys.toSeq.sorted

  /**
   * Returns an option.
   *
   * @param name its name without the prefix
   * @throws java.lang.IllegalStateException if no option has that name
   */
  def option(name: String): DeclaredOption =
    options.getOrElse(name, throw new IllegalStateException(s"there is no option $prefix$name"))

  /** Returns the key of an option in Spark's configuration. */
  def key(name: String): String = option(name).key
}

/**
 * A declared option.
 *
 * @param name its name without the prefix
 * @param kind name of its type: `size`, `duration`, `boolean`, ...
 * @param default its default, as a user would write it
 * @param least smallest value of a number, in bytes or milliseconds if it has a unit
 * @param meaning description for users
 */
final case class DeclaredOption(name: String, kind: String, default: String, least: Option[Long], meaning: String) {
  def key: String = Declarations.prefix + name
}
