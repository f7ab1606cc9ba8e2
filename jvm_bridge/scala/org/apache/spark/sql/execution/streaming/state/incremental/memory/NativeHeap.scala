package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.lang.management.ManagementFactory
import java.util.concurrent.atomic.AtomicLong
import javax.management.ObjectName

import scala.util.Try

/**
 * The C heap of this JVM. glibc keeps what was freed, and gives it back when it is asked to (malloc_trim):
 * through the JVM's diagnostic command `System.trim_native_heap`, where it has that (17.0.9 and newer, Linux).
 * Safe for any thread.
 */
private[incremental] object NativeHeap {
  private val command = new ObjectName("com.sun.management:type=DiagnosticCommand")
  private val worth = 8L << 20
  private val sinceTrim = new AtomicLong

  /** Notes that this many bytes were freed. */
  def freed(bytes: Long): Unit = sinceTrim.addAndGet(bytes)

  /** Gives freed memory back, when that is worth it. */
  def trim(): Unit = if (sinceTrim.get >= worth) {
    sinceTrim.set(0)
    Try(ManagementFactory.getPlatformMBeanServer.invoke(command, "systemTrimNativeHeap", null, null))
  }
}
