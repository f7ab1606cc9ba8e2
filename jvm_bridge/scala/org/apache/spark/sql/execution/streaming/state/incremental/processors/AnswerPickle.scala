package org.apache.spark.sql.execution.streaming.state.incremental.processors

import java.io.DataOutputStream
import java.nio.charset.StandardCharsets.UTF_8
import java.util.{Arrays, List => JavaList}

import scala.runtime.BoxedUnit

/**
 * A writer of answers as pickles (protocol 3), of the few types that answers have: null, booleans, whole numbers,
 * doubles, texts, bytes, arrays as tuples, and lists. A value of another type is a MatchError. A general pickler looks the
 * type of each value up. For one thread.
 */
private[processors] final class AnswerPickle {
  import AnswerPickle._

  private var buffer = new Array[Byte](SmallBytes)
  private var size = 0

  /** Writes the length (4 bytes, big-endian) and the pickle of an answer, and forgets it. */
  def write(answer: Any, out: DataOutputStream): Unit =
    try {
      byte(Proto)
      byte(3)
      value(answer)
      byte('.')
      out.writeInt(size)
      out.write(buffer, 0, size)
    } finally {
      size = 0
      if (buffer.length > LargeBytes) buffer = new Array[Byte](SmallBytes)
    }

  private def value(value: Any): Unit = value match {
    case null | _: BoxedUnit => byte('N')
    case number: java.lang.Long => long(number)
    case text: String => binary('X', text.getBytes(UTF_8))
    case number: java.lang.Double =>
      byte('G')
      bigEndian(java.lang.Double.doubleToRawLongBits(number))
    case flag: java.lang.Boolean => byte(if (flag) True else False)
    case number: java.lang.Integer => int(number)
    case number: java.lang.Short => int(number.toInt)
    case number: java.lang.Byte => int(number.toInt)
    case bytes: Array[Byte] => binary('B', bytes)
    case values: Array[_] => tuple(values)
    case values: JavaList[_] => list(values)
  }

  private def tuple(values: Array[_]): Unit = {
    val isShort = values.length >= 1 && values.length <= 3
    if (!isShort) byte('(')
    var i = 0
    while (i < values.length) {
      value(values(i))
      i += 1
    }
    byte(if (isShort) Tuple1 + values.length - 1 else 't')
  }

  private def list(values: JavaList[_]): Unit = {
    byte(']')
    byte('(')
    var i = 0
    while (i < values.size) {
      value(values.get(i))
      i += 1
    }
    byte('e')
  }

  private def int(number: Int): Unit =
    if (number >= 0 && number < 256) {
      byte('K')
      byte(number)
    } else {
      byte('J')
      littleEndian(number, 4)
    }

  private def long(number: Long): Unit =
    if (number == number.toInt) int(number.toInt)
    else {
      byte(Long1)
      byte(8)
      littleEndian(number, 8)
    }

  private def binary(opcode: Int, bytes: Array[Byte]): Unit = {
    byte(opcode)
    littleEndian(bytes.length, 4)
    reserve(bytes.length)
    System.arraycopy(bytes, 0, buffer, size, bytes.length)
    size += bytes.length
  }

  private def littleEndian(number: Long, bytes: Int): Unit = {
    reserve(bytes)
    var i = 0
    while (i < bytes) {
      buffer(size + i) = (number >>> (8 * i)).toByte
      i += 1
    }
    size += bytes
  }

  private def bigEndian(number: Long): Unit = littleEndian(java.lang.Long.reverseBytes(number), 8)

  private def byte(value: Int): Unit = {
    reserve(1)
    buffer(size) = value.toByte
    size += 1
  }

  private def reserve(bytes: Int): Unit =
    if (size > buffer.length - bytes) {
      val needed = Math.addExact(size, bytes)
      buffer = Arrays.copyOf(buffer, Math.max(needed, Math.min(2L * buffer.length, MostBytes).toInt))
    }
}

private[processors] object AnswerPickle {
  private final val Proto = 0x80
  private final val Tuple1 = 0x85
  private final val True = 0x88
  private final val False = 0x89
  private final val Long1 = 0x8a

  private val SmallBytes = 1 << 16

  /** The size of a buffer that is not kept for the next answer. */
  private val LargeBytes = 16 << 20
  private val MostBytes = Int.MaxValue - 16L
}
