package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.nio.{Buffer, ByteBuffer}

import org.apache.spark.unsafe.Platform
import sun.misc.Unsafe

/** Where direct buffers lie: `Platform.getDirectBufferAddress`, which Spark has from 4.2 on. */
private[memory] object DirectBuffers {
  private val AddressOffset: Long = {
    val field = classOf[Unsafe].getDeclaredField("theUnsafe")
    field.setAccessible(true)
    field.get(null).asInstanceOf[Unsafe].objectFieldOffset(classOf[Buffer].getDeclaredField("address"))
  }

  def address(buffer: ByteBuffer): Long = Platform.getLong(buffer, AddressOffset)
}
