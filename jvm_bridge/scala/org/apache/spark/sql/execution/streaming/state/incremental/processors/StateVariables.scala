package org.apache.spark.sql.execution.streaming.state.incremental.processors

import java.util.{ArrayList, List => JavaList}

import org.apache.spark.sql.Row
import org.apache.spark.sql.api.python.PythonSQLUtils
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.analysis.Analyzer
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder
import org.apache.spark.sql.catalyst.expressions.{Attribute, UnsafeRow}
import org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter
import org.apache.spark.sql.execution.streaming.state.incremental.release.ProcessorHandles.Handle
import org.apache.spark.sql.streaming.TTLConfig
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/**
 * A state variable of a processor under the present key: Spark's own variable, with the worker's values.
 *
 * Each kind has the calls of Spark's variables of its kind; the worker makes no others.
 */
private[processors] abstract class StateVariable(val name: String) {
  def exists: Boolean
  def clear(): Unit

  def value: Any = unknown
  def update(sent: AnyRef): Unit = unknown

  /** Does the last of so many updates, and counts the others. */
  def update(times: Int, sent: AnyRef): Unit = unknown

  def list(maxEntries: Int, maxBytes: Long): Any = unknown
  def append(sent: JavaList[AnyRef]): Unit = unknown
  def appendOne(sent: AnyRef): Unit = unknown
  def put(sent: JavaList[AnyRef]): Unit = unknown

  def entry(key: AnyRef): Any = unknown
  def hasEntry(key: AnyRef): Boolean = unknown
  def updateEntry(key: AnyRef, sent: AnyRef): Unit = unknown
  def updateEntry(key: AnyRef, times: Int, sent: AnyRef): Unit = unknown
  def removeEntry(key: AnyRef): Unit = unknown
  def entries(maxEntries: Int, maxBytes: Long): Any = unknown

  /**
   * Returns an iterator over the variable, or a part of it (0 entries, 1 keys, 2 values), and a function that encodes
   * its elements for the worker.
   */
  def iterator(part: Int): (Iterator[Any], Any => Any) = unknown

  private def unknown: Nothing = throw new UnsupportedOperationException(s"state variable $name has no such call")
}

private[processors] object StateVariable {

  /** Returns the first entries, about `maxBytes` and `maxEntries` at most, and true if there are no others. */
  def first(entries: Iterator[Any], maxEntries: Int, maxBytes: Long): Any = {
    val rows = new ArrayList[Any]
    var bytes = 0L
    while (rows.size < maxEntries && bytes < maxBytes && entries.hasNext) {
      val entry = entries.next()
      bytes += WorkerRowCodec.roughSize(entry)
      rows.add(entry)
    }
    Array[Any](rows, !entries.hasNext)
  }
}

private[processors] final class ValueVariable(
    handle: Handle, name: String, codec: WorkerRowCodec, ttl: TTLConfig, countUpdates: Long => Unit)
    extends StateVariable(name) {
  private val state = handle.getValueState[UnsafeRow](name, codec.encoder, ttl)

  override def exists: Boolean = state.exists()
  override def clear(): Unit = state.clear()
  override def value: Any = codec.toPython(state.get())
  override def update(sent: AnyRef): Unit = state.update(codec.toUnsafe(sent))

  override def update(times: Int, sent: AnyRef): Unit = {
    update(sent)
    countUpdates(times - 1L)
  }
}

private[processors] final class ListVariable(handle: Handle, name: String, codec: WorkerRowCodec, ttl: TTLConfig)
    extends StateVariable(name) {
  private val state = handle.getListState[UnsafeRow](name, codec.encoder, ttl)

  override def exists: Boolean = state.exists()
  override def clear(): Unit = state.clear()
  override def append(sent: JavaList[AnyRef]): Unit = state.appendList(codec.toUnsafeRows(sent))
  override def appendOne(sent: AnyRef): Unit = state.appendValue(codec.toUnsafe(sent))
  override def put(sent: JavaList[AnyRef]): Unit = state.put(codec.toUnsafeRows(sent))

  override def list(maxEntries: Int, maxBytes: Long): Any =
    StateVariable.first(state.get().map(codec.toPython), maxEntries, maxBytes)

  override def iterator(part: Int): (Iterator[Any], Any => Any) =
    (state.get(), row => codec.toPython(row.asInstanceOf[UnsafeRow]))
}

private[processors] final class MapVariable(
    handle: Handle,
    name: String,
    keys: WorkerRowCodec,
    values: WorkerRowCodec,
    ttl: TTLConfig,
    countUpdates: Long => Unit)
    extends StateVariable(name) {
  private val state = handle.getMapState[UnsafeRow, UnsafeRow](name, keys.encoder, values.encoder, ttl)

  override def exists: Boolean = state.exists()
  override def clear(): Unit = state.clear()
  override def entry(key: AnyRef): Any = values.toPython(state.getValue(keys.toUnsafe(key)))
  override def hasEntry(key: AnyRef): Boolean = state.containsKey(keys.toUnsafe(key))
  override def updateEntry(key: AnyRef, sent: AnyRef): Unit = state.updateValue(keys.toUnsafe(key),
    values.toUnsafe(sent))

  override def updateEntry(key: AnyRef, times: Int, sent: AnyRef): Unit = {
    updateEntry(key, sent)
    countUpdates(times - 1L)
  }

  override def removeEntry(key: AnyRef): Unit = state.removeKey(keys.toUnsafe(key))

  override def entries(maxEntries: Int, maxBytes: Long): Any =
    StateVariable.first(state.iterator().map(pair), maxEntries, maxBytes)

  override def iterator(part: Int): (Iterator[Any], Any => Any) = part match {
    case 0 => (state.iterator(), pair)
    case 1 => (state.keys(), row => keys.toPython(row.asInstanceOf[UnsafeRow]))
    case 2 => (state.values(), row => values.toPython(row.asInstanceOf[UnsafeRow]))
  }

  private def pair(entry: Any): Any = {
    val (key, value) = entry.asInstanceOf[(UnsafeRow, UnsafeRow)]
    Array[Any](keys.toPython(key), values.toPython(value))
  }
}

/**
 * A codec between rows of one schema and their form on the worker's socket: the array of their values, if all of them
 * are the same in Python and in Spark's rows; else the pickle that Spark's state server exchanges. For one thread.
 */
private[processors] final class WorkerRowCodec(val schema: StructType) {
  import WorkerRowCodec._

  private val rows = ExpressionEncoder(schema)
  private lazy val serializer = rows.createSerializer()
  private lazy val deserializer = rows.resolveAndBind().createDeserializer()
  private val kinds: Array[Int] = if (isPlain(schema)) schema.fields.map(field => kindOf(field.dataType)) else null
  private val writer = if (kinds == null) null else new UnsafeRowWriter(kinds.length)

  /** The encoder of state variables that take and give the rows of this codec. */
  val encoder: ExpressionEncoder[UnsafeRow] = new UnsafeRowEncoder[UnsafeRow](rows, identity, identity)

  /** The encoder of state variables and timers under keys of this codec. */
  lazy val keyEncoder: ExpressionEncoder[Any] =
    new UnsafeRowEncoder[Any](rows, _.asInstanceOf[GroupingKey].row, new GroupingKey(_, this))

  /** Decodes a row that the worker sent. It is valid until the next call. */
  def toUnsafe(sent: AnyRef): UnsafeRow = sent match {
    case pickle: Array[Byte] =>
      serializer(PythonSQLUtils.toJVMRow(pickle, schema, deserializer)).asInstanceOf[UnsafeRow]
    case values: Array[AnyRef] => written(values)
  }

  def toUnsafeRows(sent: JavaList[AnyRef]): Array[UnsafeRow] = {
    val rows = new Array[UnsafeRow](sent.size)
    var i = 0
    while (i < rows.length) {
      rows(i) = toUnsafe(sent.get(i)).copy()
      i += 1
    }
    rows
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

  /** Encodes a row for the worker; null for null. */
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

private[processors] object WorkerRowCodec {
  private final val OfLong = 0
  private final val OfInteger = 1
  private final val OfShort = 2
  private final val OfByte = 3
  private final val OfDouble = 4
  private final val OfBoolean = 5
  private final val OfString = 6
  private final val OfNone = -1

  /** Returns true if the values of all columns are the same in Spark's rows, in their pickles and to the user. */
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

  /** Returns the approximate bytes that a result takes in an answer. */
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

/**
 * An encoder whose objects are rows in Spark's own format: it passes them on. With it, Spark's state variables and
 * timers take and give the rows of the store, and make no objects of them. For one thread.
 *
 * The rows that it gives are copies, because Spark's iterators read ahead and the store may reuse a row's memory.
 *
 * @param rows the encoder of the same schema, which has the schemas that Spark reads
 * @param toRow returns the row of an object
 * @param fromRow returns the object of a row
 */
private[processors] class UnsafeRowEncoder[T](rows: ExpressionEncoder[_], toRow: T => UnsafeRow,
    fromRow: UnsafeRow => T)
    extends ExpressionEncoder[T](
      rows.asInstanceOf[ExpressionEncoder[T]].encoder, rows.objSerializer, rows.objDeserializer) {

  override def resolveAndBind(attributes: Seq[Attribute], analyzer: Analyzer): ExpressionEncoder[T] = this

  override def createSerializer(): ExpressionEncoder.Serializer[T] =
    new ExpressionEncoder.Serializer[T](Nil) {
      override def apply(value: T): InternalRow = toRow(value)
    }

  override def createDeserializer(): ExpressionEncoder.Deserializer[T] =
    new ExpressionEncoder.Deserializer[T](Nil) {
      override def apply(row: InternalRow): T = fromRow(row.asInstanceOf[UnsafeRow].copy())
    }
}

/** The grouping key of a state variable or a timer, as a row. In Spark's log it reads like Spark's `Row`. */
private[processors] final class GroupingKey(val row: UnsafeRow, codec: WorkerRowCodec) {
  override def toString: String = codec.toRow(row).toString
}
