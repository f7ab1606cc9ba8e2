package org.apache.spark.sql.execution.streaming.state.incremental.lookahead

import java.io.File

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{BoundReference, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.types.{BinaryType, LongType}

/** Cases of rows that are taken before they are asked for. */
private[incremental] object TakenRows {

  /** Rows come in order, each once, and their keys are announced in bounded numbers before the first row is given. */
  def areBoundedAndInOrder(directory: File): Unit = {
    check(rows = 2 * LookAheadRows.MaxRows + 100, padding = 8,
      expected = Seq(LookAheadRows.MaxRows, LookAheadRows.MaxRows, 100))
    val announced = check(rows = 20, padding = 1 << 20, expected = Nil)
    expect(announced.head <= LookAheadRows.MaxBytes / (1 << 20) + 1,
      s"$announced rows of a megabyte were taken at a time")
    expect(check(rows = 0, padding = 8, expected = Seq()).isEmpty, "keys of no rows were announced")
    takesNothingWithoutSuchAStore()
  }

  private def check(rows: Int, padding: Int, expected: Seq[Int]): Seq[Int] = {
    var given = 0
    var announced = Vector.empty[Int]
    val source = new Reused(rows, padding)
    val announce = (keys: Array[UnsafeRow]) => {
      keys.indices.foreach(i =>
        expect(keys(i).getLong(0) == given + i, s"key $i after $given rows is ${keys(i).getLong(0)}"))
      announced :+= keys.length
    }
    val all = new LookAheadRows(source, Some(announce), key)
    all.foreach { row =>
      expect(row.getLong(0) == given, s"row $given is ${row.getLong(0)}")
      given += 1
      expect(announced.sum >= given, s"row $given was given before its key was announced")
    }
    expect(given == rows, s"$given of $rows rows were given")
    expect(expected.isEmpty || announced == expected, s"keys were announced in $announced, and not in $expected")
    announced
  }

  private def takesNothingWithoutSuchAStore(): Unit = {
    val source = new Reused(3, 8)
    val all = new LookAheadRows(source, None, _ => throw new AssertionError("a key was made"))
    all.next()
    expect(source.given == 1, s"${source.given} rows were taken for one")
  }

  private def key: InternalRow => UnsafeRow = {
    val projection = UnsafeProjection.create(Seq(BoundReference(0, LongType, nullable = false)))
    row => projection(row)
  }

  /** Rows as Spark's operators give them: one object that the next row overwrites. */
  private final class Reused(rows: Int, padding: Int) extends Iterator[InternalRow] {
    private val toUnsafe = UnsafeProjection.create(Array[org.apache.spark.sql.types.DataType](LongType, BinaryType))
    private val bytes = new Array[Byte](padding)
    var given = 0
    def hasNext: Boolean = given < rows

    def next(): InternalRow = {
      given += 1
      toUnsafe(InternalRow(given - 1L, bytes))
    }
  }

  private def expect(condition: Boolean, message: => String): Unit = if (!condition) throw new AssertionError(message)
}
