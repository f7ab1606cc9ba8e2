package org.apache.spark.sql.execution.streaming.state.incremental.vectorized

import java.io.ByteArrayOutputStream
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.charset.StandardCharsets.US_ASCII

import org.apache.spark.api.python.SimplePythonFunction
import org.apache.spark.sql.catalyst.expressions.PythonUDF

/**
 * Wraps an ordinary Python function, known to the JVM only as pickled bytes, into an accelerated one.
 *
 * The wrapping is itself a pickle (protocol 3) that calls
 * `state_store.functions.accelerated.accelerated_command(original bytes)` when the worker loads it.
 */
private[vectorized] object PickledCommand {
  private val Module = "state_store.functions.accelerated"
  private val Function = "accelerated_command"

  def accelerated(udf: PythonUDF): PythonUDF = {
    val f = udf.func
    val wrapped = SimplePythonFunction(
      wrap(f.command.toArray).toSeq, f.envVars, f.pythonIncludes, f.pythonExec, f.pythonVer, f.broadcastVars,
      f.accumulator)
    udf.copy(name = GroupsMode.acceleratedName(udf.name), func = wrapped)
  }

  private[vectorized] def wrap(command: Array[Byte]): Array[Byte] = {
    val out = new ByteArrayOutputStream(command.length + 96)
    out.write(Array(0x80.toByte, 3.toByte)) // PROTO 3
    out.write(s"c$Module\n$Function\n".getBytes(US_ASCII)) // GLOBAL
    out.write('B') // BINBYTES: length as 4 bytes, little-endian
    out.write(ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(command.length).array())
    out.write(command)
    out.write(Array(0x85.toByte, 'R'.toByte, '.'.toByte)) // TUPLE1, REDUCE, STOP
    out.toByteArray
  }
}
