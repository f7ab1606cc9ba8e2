package org.apache.spark.sql.execution.streaming.state.incremental.settings

import java.io.IOException
import java.nio.file.{
  AccessDeniedException, FileAlreadyExistsException, FileSystemException, NoSuchFileException, NotDirectoryException
}
import java.util.Locale

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

import org.apache.spark.sql.internal.SQLConf

// Options: declared by the Python package, read from a session's texts, and the advice if a local disk fails.

/**
 * Declarations of the Python package for both planes: the options with their defaults and units, and the reserved
 * names of the format. The build packs them into the jar (`state_store/session/build.py`). Immutable.
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

  /** Largest values, in bytes or milliseconds, by the name of the option's type. */
  private[settings] val largest: Map[String, Long] =
    root.path("largest").properties.asScala.map(limit => limit.getKey -> limit.getValue.asLong).toMap

  /** The words for values above these. */
  private[settings] val tooLarge: Map[String, String] =
    root.path("too_large").properties.asScala.map(words => words.getKey -> words.getValue.asText).toMap

  private val options: Map[String, DeclaredOption] =
    root.path("options").properties.asScala.map { declared =>
      val fields = declared.getValue
      val least = Option(fields.get("least")).filterNot(_.isNull).map(_.asLong)
      declared.getKey -> DeclaredOption(
        declared.getKey, fields.path("type").asText, fields.path("default").asText, least,
        fields.path("too_small").asText, fields.path("meaning").asText)
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
 * @param tooSmall the words for values below that
 * @param meaning description for users
 */
final case class DeclaredOption(
    name: String, kind: String, default: String, least: Option[Long], tooSmall: String, meaning: String) {
  def key: String = Declarations.prefix + name
}

/**
 * Options as a session or a query sets them, with their defaults for those that are not set. Texts are read as the
 * control plane reads them.
 *
 * @param texts returns the text of an option that is set, by its name without the prefix
 */
final class OptionTexts(texts: String => Option[String]) {

  /** Returns the text as it is set, or the default. */
  def text(name: String): String =
    texts(name).map(_.trim).filter(_.nonEmpty).getOrElse(Declarations.option(name).default)

  /**
   * Returns an option of type `boolean`.
   *
   * @throws java.lang.IllegalArgumentException that names option, value and remedy
   */
  def boolean(name: String): Boolean = read(name, "true or false is needed") { text =>
    Some(text.toLowerCase(Locale.ROOT)).collect { case "true" => true; case "false" => false }
  }

  /**
   * Returns an option of type `size`, in bytes.
   *
   * @throws java.lang.IllegalArgumentException that names option, value and remedy
   */
  def bytes(name: String): Long = number(name, "a size in bytes is needed, such as 512m or 2g")

  /**
   * Returns an option of type `duration`, in milliseconds.
   *
   * @throws java.lang.IllegalArgumentException that names option, value and remedy
   */
  def durationMs(name: String): Long =
    number(name, "a duration with its unit is needed, such as 500ms, 30s, 10min, 1h or 7d")

  /**
   * Returns an option of type `integer`.
   *
   * @throws java.lang.IllegalArgumentException that names option, value and remedy
   */
  def count(name: String): Int = {
    val least = Declarations.option(name).least.getOrElse(Int.MinValue.toLong)
    read(name, s"a whole number of $least or more is needed") { text =>
      Some(text).filter(_.matches(OptionTexts.Integer)).map(BigInt(_)).filter(_ >= least).map(_.min(Int.MaxValue).toInt)
    }
  }

  private def number(name: String, needed: String): Long = {
    val option = Declarations.option(name)
    val units = Declarations.units(option.kind)
    val value = read(name, needed) {
      case "0" => Some(BigInt(0))
      case OptionTexts.Number(digits, unit) =>
        units.get(unit.toLowerCase(Locale.ROOT)).flatMap { factor =>
          Some(BigInt(digits) * factor)
        }
      case _ => None
    }
    option.least.filter(value < _).foreach(_ => throw wrong(name, option.tooSmall))
    if (value > Declarations.largest(option.kind)) throw wrong(name, Declarations.tooLarge(option.kind))
    value.toLong
  }

  private def read[T](name: String, needed: String)(parse: String => Option[T]): T =
    parse(text(name)).getOrElse(throw wrong(name, needed))

  private def wrong(name: String, needed: String): IllegalArgumentException = {
    val option = Declarations.option(name)
    new IllegalArgumentException(
      s"option ${option.key} is set to '${text(name)}', but $needed. Its default is ${option.default}.")
  }
}

object OptionTexts {
  private val Integer = "(?U)[+-]?\\d+"
  private val Number = """([0-9]+)\s*([A-Za-z]*)""".r

  /** Returns the options of a session. */
  def of(conf: SQLConf): OptionTexts =
    new OptionTexts(name => Option(conf.getConfString(Declarations.key(name), null)))
}

/** Advice on a local disk of an executor that failed, by the cause. The texts are those of the operating system. */
private[incremental] object LocalDisks {

  /** The option that moves local files to another disk. */
  val Option: String = Declarations.prefix + "localDir"

  private val elsewhere = s"or set $Option or spark.local.dir to another."
  private val full = s"Free space on that disk of the executor, $elsewhere"
  private val notAllowed = s"Let the user of the executor write there, $elsewhere"
  private val noDirectory = s"Remove the file that stands where a directory has to be, $elsewhere"
  private val removed = s"Keep cleaners of temporary files away from it, $elsewhere"
  private val byText = Seq(
    "No space left" -> full,
    "quota exceeded" -> s"Delete files of the executor's user there, have the quota raised, $elsewhere",
    "Read-only file system" -> s"Mount that file system so that it can be written, $elsewhere",
    "Permission denied" -> notAllowed,
    "Operation not permitted" -> notAllowed,
    "Not a directory" -> noDirectory,
    "No such file or directory" -> removed,
    "Input/output error" -> s"Replace that disk, whose faults the kernel's log describes, $elsewhere")

  /** Returns the reason for a failure: the messages of some exceptions are only the name of the file. */
  def reason(error: IOException): String = error match {
    case _: FileSystemException => s"${error.getClass.getSimpleName}: ${error.getMessage}"
    case _ => error.getMessage
  }

  /** Returns a sentence with what a user can do about a failure of a local disk. */
  def remedy(error: IOException): String = error match {
    case _: AccessDeniedException => notAllowed
    case _: NotDirectoryException | _: FileAlreadyExistsException => noDirectory
    case _: NoSuchFileException => removed
    case _ =>
      val text = String.valueOf(error.getMessage)
      byText.collectFirst { case (words, advice) if text.contains(words) => advice }
        .getOrElse(s"Check that disk of the executor, $elsewhere")
  }
}
