package org.apache.spark.sql.execution.streaming.state.incremental.processors

import java.util.{List => JavaList}

import org.apache.spark.sql.api.python.PythonSQLUtils
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.python.EvaluatePython
import org.apache.spark.sql.Row
import org.apache.spark.sql.types._

/**
 * Rows of one schema as the worker sends and gets them: as the array of their values, where all of them are the
 * same to Python and to Spark's rows, and otherwise as the pickle that Spark's state server exchanges.
 */
private[processors] final class RowCodec(val schema: StructType) {
  private val encoder = ExpressionEncoder(schema).resolveAndBind()
  private val deserializer = encoder.createDeserializer()
  private val fromJava = EvaluatePython.makeFromJava(schema)
  private val isPlain = RowCodec.isPlain(schema)

  def toRow(sent: AnyRef): Row = sent match {
    case pickle: Array[Byte] => PythonSQLUtils.toJVMRow(pickle, schema, deserializer)
    case values => deserializer(fromJava(values).asInstanceOf[InternalRow])
  }

  def toRows(sent: JavaList[AnyRef]): Array[Row] = {
    val rows = new Array[Row](sent.size)
    var i = 0
    while (i < rows.length) {
      rows(i) = toRow(sent.get(i))
      i += 1
    }
    rows
  }

  /** `row` for the worker, null for null. */
  def toPython(row: Row): Any =
    if (row == null) null
    else if (isPlain) {
      val values = new Array[Any](row.length)
      var i = 0
      while (i < values.length) {
        values(i) = row.get(i)
        i += 1
      }
      values
    } else PythonSQLUtils.toPyRow(row)
}

private[processors] object RowCodec {

  /** Whether values of all columns are the same in Spark's rows, in their pickles and to the user. */
  def isPlain(schema: StructType): Boolean = schema.forall(_.dataType match {
    case LongType | IntegerType | ShortType | ByteType | DoubleType | BooleanType => true
    case text: StringType => text == StringType
    case _ => false
  })

  /** About how many bytes a result takes in an answer. */
  def roughSize(result: Any): Long = result match {
    case text: String => 16L + text.length
    case bytes: Array[Byte] => 16L + bytes.length
    case values: Array[_] =>
      var sum = 16L
      var i = 0
      while (i < values.length) {
        sum += roughSize(values(i))
        i += 1
      }
      sum
    case values: JavaList[_] =>
      var sum = 16L
      values.forEach(value => sum += roughSize(value))
      sum
    case _ => 16L
  }
}
