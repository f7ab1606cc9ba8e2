package org.apache.spark.sql.execution.streaming.state.incremental.migration

import org.apache.spark.sql.catalyst.expressions.{GenericInternalRow, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec
import org.apache.spark.sql.execution.streaming.state.incremental.rows.{DamagedListException, JoinedLists}
import org.apache.spark.sql.types.StructType
import org.apache.spark.unsafe.types.UTF8String

/** Cases of a migration: lists whose bytes are not a list, and copies that are not their source. */
object CopiedRows {
  private val keys = StructType.fromDDL("k string, n long")
  private val values = StructType.fromDDL("v string")
  private val family =
    Family("rows", keys, values, NoPrefixKeyStateEncoderSpec(keys), isList = true, isInternal = false)

  def main(arguments: Array[String]): Unit = {
    listsAreWhole()
    contentsDifferByEachPart()
    println("copies are compared")
  }

  private def listsAreWhole(): Unit = {
    val delimited = list("one".getBytes, 1) ++ list("second".getBytes, 0)
    val plain = list("one".getBytes, 0) ++ list("second".getBytes, 0)
    JoinedLists.check(Array.empty, 1)
    JoinedLists.check(list("one".getBytes, 0), 1)
    JoinedLists.check(delimited, 1)
    JoinedLists.check(plain, 0)
    refused(delimited, 0)
    refused(plain, 1)
    for (delimiter <- 0 to 1; whole = if (delimiter == 1) delimited else plain) {
      for (length <- 1 until whole.length if length != 7) refused(whole.take(length), delimiter)
      for (size <- Seq(-1, 0, Int.MinValue, Int.MaxValue, 4396)) {
        refused(bytes(size) ++ whole.drop(4), delimiter)
      }
    }
    refused(delimited.updated(7, 'x'.toByte), 1)
  }

  private def refused(list: Array[Byte], delimiterBytes: Int): Unit =
    try {
      JoinedLists.check(list, delimiterBytes)
      throw new AssertionError(s"${list.toSeq} with $delimiterBytes bytes between values is taken for a list")
    } catch {
      case _: DamagedListException =>
    }

  private def list(value: Array[Byte], delimiters: Int): Array[Byte] =
    bytes(value.length) ++ value ++ Array.fill(delimiters)(','.toByte)

  private def bytes(size: Int): Array[Byte] = Array.tabulate(4)(at => (size >>> (8 * at)).toByte)

  private def contentsDifferByEachPart(): Unit = {
    val rows = Seq(("a", 1L, "x", 0L), ("a", 1L, "y", 1L), ("b", 1L, "x", 0L), (null, 2L, null, 0L))
    val all = contents(rows)
    assert(all.isSame(contents(rows.reverse)), "the order of keys counts")
    val others = Seq(
      rows.tail, rows :+ rows.head, rows.updated(0, ("a", 1L, "y", 0L)).updated(1, ("a", 1L, "x", 1L)),
      rows.updated(2, ("b", 2L, "x", 0L)), rows.updated(3, ("", 2L, null, 0L)), rows.updated(3, (null, 2L, "", 0L)))
    others.foreach(other => assert(!all.isSame(contents(other)), s"$other counts as $rows"))
  }

  private def contents(rows: Seq[(String, Long, String, Long)]): FamilyContents = {
    val found = new FamilyContents(family)
    rows.foreach { case (k, n, v, position) => found.add(row(keys, text(k), n), row(values, text(v)), position) }
    found
  }

  private def text(value: String): Any = if (value == null) null else UTF8String.fromString(value)

  private def row(schema: StructType, fields: Any*): UnsafeRow =
    UnsafeProjection.create(schema)(new GenericInternalRow(fields.toArray)).copy()
}
