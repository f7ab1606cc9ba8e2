package org.apache.spark.sql.execution.streaming.state.incremental

import scala.util.Random

/**
 * Random keys and values: few and many, short, empty and long, with long common beginnings. Characters stand for bytes.
 */
final class TestKeys(random: Random) {
  private val families = Array("\u0000\u0000", "\u0000\u0001", "\u0001\u00ff")
  private val middle = Array("", "a", "\u0000", "\u0000\u0000\u0000\u0000\u0000\u0000\u0000\u0000long", "\u00ff\u00ff")
  private val spread = 10 + random.nextInt(400)

  def next(rows: StateModel.Rows): String =
    if (rows.nonEmpty && random.nextInt(3) == 0) rows.rangeFrom(fresh()).headOption.getOrElse(rows.last)._1
    else fresh()

  private def fresh(): String = {
    val start = families(random.nextInt(families.length)) + middle(random.nextInt(middle.length))
    random.nextInt(30) match {
      case 0 => start
      case 1 => start + "\u0000" * random.nextInt(40)
      case n if n > 20 => "\u0000\u0002" + prefix() + random.nextInt(6)
      case 2 => start + "x" * (random.nextInt(600)) + random.nextInt(4)
      case _ => start + random.nextInt(spread)
    }
  }

  /** Returns the common beginning of the keys of a group, with its length before it. */
  def prefix(): String = {
    val text = "p" * random.nextInt(3) + random.nextInt(spread / 5 + 1)
    text.length.toChar.toString + "\u0000\u0000\u0000" + text
  }

  def value(): String = random.nextInt(40) match {
    case 0 => ""
    case 1 => "v" * random.nextInt(20000)
    case 2 if random.nextInt(50) == 0 => "w" * random.nextInt(300000)
    case n => s"${random.nextInt()}" * (n % 10 + 1)
  }
}
