package org.apache.spark.sql.execution.streaming.state.incremental.processors

import java.util.{List => JavaList}

import org.apache.spark.sql.api.python.PythonSQLUtils
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter
import org.apache.spark.sql.Row
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/**
 * Rows of one schema as the worker sends and gets them: as the array of their values, where all of them are the
 * same to Python and to Spark's rows, and otherwise as the pickle that Spark's state server exchanges. Used by one
 * thread.
 */
private[processors] final class RowCodec(val schema: StructType) {
  import RowCodec._

  private val rows = ExpressionEncoder(schema)
  private lazy val serializer = rows.createSerializer()
  private lazy val deserializer = rows.resolveAndBind().createDeserializer()
  private val kinds: Array[Int] = if (isPlain(schema)) schema.fields.map(field => kindOf(field.dataType)) else null
  private val writer = if (kinds == null) null else new UnsafeRowWriter(kinds.length)

  /** For state variables that take and give the rows of this codec. */
  val encoder: ExpressionEncoder[UnsafeRow] = new UnsafeRowEncoder[UnsafeRow](rows, identity, identity)

  /** For state variables and timers under keys of this codec. */
  lazy val keyEncoder: ExpressionEncoder[Any] =
    new UnsafeRowEncoder[Any](rows, _.asInstanceOf[GroupingKey].row, new GroupingKey(_, this))

  /** The row that the worker has sent. It is valid until the next call. */
  def toUnsafe(sent: AnyRef): UnsafeRow = sent match {
    case pickle: Array[Byte] =>
      serializer(PythonSQLUtils.toJVMRow(pickle, schema, deserializer)).asInstanceOf[UnsafeRow]
    case values: Array[AnyRef] => written(values)
  }

  def toUnsafeRows(sent: JavaList[AnyRef]): Array[UnsafeRow] = {
    val found = new Array[UnsafeRow](sent.size)
    var i = 0
    while (i < found.length) {
      found(i) = toUnsafe(sent.get(i)).copy()
      i += 1
    }
    found
  }

  def toRow(row: UnsafeRow): Row = deserializer(row)

  private def written(values: Array[AnyRef]): UnsafeRow = {
    writer.reset()
    writer.zeroOutNullBytes()
    var i = 0
    while (i < kinds.length) {
      val value = values(i)
      if (value == null) writer.setNullAt(i)
      else kinds(i) match {
        case OfLong => writer.write(i, value.asInstanceOf[Number].longValue)
        case OfInteger => writer.write(i, value.asInstanceOf[Number].intValue)
        case OfShort => writer.write(i, value.asInstanceOf[Number].shortValue)
        case OfByte => writer.write(i, value.asInstanceOf[Number].byteValue)
        case OfDouble => writer.write(i, value.asInstanceOf[Number].doubleValue)
        case OfBoolean => writer.write(i, value.asInstanceOf[Boolean])
        case OfString => writer.write(i, UTF8String.fromString(value.asInstanceOf[String]))
      }
      i += 1
    }
    writer.getRow
  }

  /** `row` for the worker, null for null. */
  def toPython(row: UnsafeRow): Any =
    if (row == null) null
    else if (kinds == null) PythonSQLUtils.toPyRow(deserializer(row))
    else {
      val values = new Array[Any](kinds.length)
      var i = 0
      while (i < values.length) {
        if (!row.isNullAt(i)) values(i) = kinds(i) match {
          case OfLong => row.getLong(i)
          case OfInteger => row.getInt(i)
          case OfShort => row.getShort(i)
          case OfByte => row.getByte(i)
          case OfDouble => row.getDouble(i)
          case OfBoolean => row.getBoolean(i)
          case OfString => row.getUTF8String(i).toString
        }
        i += 1
      }
      values
    }
}

private[processors] object RowCodec {
  private final val OfLong = 0
  private final val OfInteger = 1
  private final val OfShort = 2
  private final val OfByte = 3
  private final val OfDouble = 4
  private final val OfBoolean = 5
  private final val OfString = 6
  private final val OfNone = -1

  /** Whether values of all columns are the same in Spark's rows, in their pickles and to the user. */
  def isPlain(schema: StructType): Boolean = schema.forall(field => kindOf(field.dataType) != OfNone)

  private def kindOf(dataType: DataType): Int = dataType match {
    case LongType => OfLong
    case IntegerType => OfInteger
    case ShortType => OfShort
    case ByteType => OfByte
    case DoubleType => OfDouble
    case BooleanType => OfBoolean
    case text: StringType if text == StringType => OfString
    case _ => OfNone
  }

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
