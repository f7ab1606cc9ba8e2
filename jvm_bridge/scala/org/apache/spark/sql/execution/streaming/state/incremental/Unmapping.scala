package org.apache.spark.sql.execution.streaming.state.incremental

import java.nio.ByteBuffer

/**
 * Ends the mapping of a memory-mapped buffer now, not when it is collected. Nobody may touch it afterwards.
 */
private[incremental] object Unmapping {
  private val unsafe = {
    val field = classOf[sun.misc.Unsafe].getDeclaredField("theUnsafe")
    field.setAccessible(true)
    field.get(null).asInstanceOf[sun.misc.Unsafe]
  }

  def invoke(buffer: ByteBuffer): Unit = unsafe.invokeCleaner(buffer)
}
