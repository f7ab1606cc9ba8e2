package org.apache.spark.sql.execution.streaming.state.incremental.settings

import java.util.Locale

import org.apache.spark.sql.internal.SQLConf

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
    read(name, s"a whole number of $least or more is needed")(
      _.toLongOption.filter(_ >= least).map(math.min(_, Int.MaxValue.toLong).toInt))
  }

  private def number(name: String, needed: String): Long = {
    val option = Declarations.option(name)
    val units = Declarations.units(option.kind)
    val value = read(name, needed) {
      case "0" => Some(0L)
      case OptionTexts.Number(digits, unit) =>
        units.get(unit.toLowerCase(Locale.ROOT)).flatMap { factor =>
          try Some(Math.multiplyExact(digits.toLong, factor))
          catch { case _: ArithmeticException | _: NumberFormatException => None }
        }
      case _ => None
    }
    option.least.filter(value < _).foreach(least => throw wrong(name, s"$least or more is needed"))
    value
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
  private val Number = """([0-9]+)\s*([A-Za-z]*)""".r

  /** Returns the options of a session. */
  def of(conf: SQLConf): OptionTexts =
    new OptionTexts(name => Option(conf.getConfString(Declarations.key(name), null)))
}
