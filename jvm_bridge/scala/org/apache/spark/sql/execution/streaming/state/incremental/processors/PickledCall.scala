package org.apache.spark.sql.execution.streaming.state.incremental.processors

import java.io.ByteArrayOutputStream
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.charset.StandardCharsets.{US_ASCII, UTF_8}

/** Writes a pickle (protocol 3) that calls a Python function when it is loaded. */
private[incremental] object PickledCall {

  /**
   * @param module the module of the function
   * @param function its name there
   * @param data the first argument, as `bytes`
   * @param texts the further arguments, as `str`
   */
  def apply(module: String, function: String, data: Array[Byte], texts: String*): Seq[Byte] = {
    val out = new ByteArrayOutputStream(data.length + 96 + texts.map(_.length).sum)
    out.write(Array(0x80.toByte, 3.toByte)) // PROTO 3
    out.write(s"c$module\n$function\n".getBytes(US_ASCII)) // GLOBAL
    out.write('(') // MARK
    write(out, 'B', data) // BINBYTES
    texts.foreach(text => write(out, 'X', text.getBytes(UTF_8))) // BINUNICODE
    out.write(Array('t'.toByte, 'R'.toByte, '.'.toByte)) // TUPLE, REDUCE, STOP
    out.toByteArray.toSeq
  }

  private def write(out: ByteArrayOutputStream, opcode: Char, data: Array[Byte]): Unit = {
    out.write(opcode)
    out.write(ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(data.length).array())
    out.write(data)
  }
}
