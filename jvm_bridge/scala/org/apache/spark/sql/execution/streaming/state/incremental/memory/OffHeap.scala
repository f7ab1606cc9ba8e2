package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.lang.management.ManagementFactory
import java.nio.{Buffer, ByteBuffer}
import java.util.concurrent.atomic.AtomicLong
import javax.management.ObjectName

import scala.util.Try

import org.apache.spark.storage.StorageUtils
import org.apache.spark.unsafe.Platform
import sun.misc.Unsafe

/**
 * Access to memory outside the heap and to arrays by place: an object and an offset as Unsafe takes them, an array and
 * an offset from its beginning, or null and an address. All reads and writes of the data plane go through here.
 *
 * With `-DincrementalStateStore.checkMemory=true` each access must lie within an array or within one piece of memory
 * that was allocated and not yet freed, else it throws a [[MemoryFault]]; see [[MemoryGuard]]. Without the property
 * nothing is checked, and the JIT compiles no check.
 */
private[incremental] object OffHeap {

  /** The system property that switches the checks on. */
  val property = "incrementalStateStore.checkMemory"

  /** True if the checks are on. */
  val checked: Boolean = java.lang.Boolean.getBoolean(property)

  /** The offset of the first element of an array of bytes. */
  val arrayBase: Int = Platform.BYTE_ARRAY_OFFSET

  /** The offset of the first element of an array of longs. */
  val longArrayBase: Int = Platform.LONG_ARRAY_OFFSET

  /** The offset of a direct buffer's address. (`Platform.getDirectBufferAddress` exists since Spark 4.2.) */
  private val bufferAddress: Long = {
    val unsafe = classOf[Unsafe].getDeclaredField("theUnsafe")
    unsafe.setAccessible(true)
    unsafe.get(null).asInstanceOf[Unsafe].objectFieldOffset(classOf[Buffer].getDeclaredField("address"))
  }

  def getByte(o: AnyRef, at: Long): Byte = {
    if (checked) MemoryGuard.access(o, at, 1)
    Platform.getByte(o, at)
  }

  def getInt(o: AnyRef, at: Long): Int = {
    if (checked) MemoryGuard.access(o, at, 4)
    Platform.getInt(o, at)
  }

  def getLong(o: AnyRef, at: Long): Long = {
    if (checked) MemoryGuard.access(o, at, 8)
    Platform.getLong(o, at)
  }

  def putByte(o: AnyRef, at: Long, value: Byte): Unit = {
    if (checked) MemoryGuard.access(o, at, 1)
    Platform.putByte(o, at, value)
  }

  def putInt(o: AnyRef, at: Long, value: Int): Unit = {
    if (checked) MemoryGuard.access(o, at, 4)
    Platform.putInt(o, at, value)
  }

  def putLong(o: AnyRef, at: Long, value: Long): Unit = {
    if (checked) MemoryGuard.access(o, at, 8)
    Platform.putLong(o, at, value)
  }

  def copyMemory(from: AnyRef, fromAt: Long, to: AnyRef, toAt: Long, bytes: Long): Unit = {
    if (checked) {
      MemoryGuard.beforeUse()
      MemoryGuard.access(from, fromAt, bytes)
      MemoryGuard.access(to, toAt, bytes)
    }
    Platform.copyMemory(from, fromAt, to, toAt, bytes)
  }

  def setMemory(at: Long, value: Byte, bytes: Long): Unit = {
    if (checked) MemoryGuard.access(null, at, bytes)
    Platform.setMemory(at, value, bytes)
  }

  /**
   * Allocates bytes, with any content.
   *
   * @return their address, valid until [[free]]
   */
  def allocate(bytes: Long): Long = {
    if (checked) MemoryGuard.beforeUse()
    val address = Platform.allocateMemory(bytes)
    if (checked) MemoryGuard.allocated(address, bytes)
    address
  }

  /** Frees memory of [[allocate]]. */
  def free(address: Long): Unit = if (checked) MemoryGuard.free(address) else Platform.freeMemory(address)

  /** Announces that a local file will be opened, read, written or mapped: a test lets that fail. */
  def fileUse(): Unit = if (checked) MemoryGuard.beforeFileUse()

  /** Returns a buffer outside the heap, which the garbage collector or [[dispose]] frees. */
  def buffer(bytes: Int): ByteBuffer = {
    val buffer = ByteBuffer.allocateDirect(bytes)
    if (checked) MemoryGuard.collected(buffer)
    buffer
  }

  /** Frees a buffer at once. Nobody may use it any more. */
  def dispose(buffer: ByteBuffer): Unit = {
    if (checked) MemoryGuard.unmapped(addressOf(buffer))
    StorageUtils.dispose(buffer)
  }

  /** Returns the address of a buffer of [[buffer]] or of a mapping of [[mapped]]. */
  def addressOf(buffer: ByteBuffer): Long = Platform.getLong(buffer, bufferAddress)

  /**
   * Registers the mapping of a file until [[unmapped]].
   *
   * @return its address
   */
  def mapped(mapping: ByteBuffer): Long = {
    val address = addressOf(mapping)
    if (checked && mapping.capacity > 0) MemoryGuard.mapped(address, mapping.capacity)
    address
  }

  /** Unregisters a mapping, before it is removed. */
  def unmapped(address: Long): Unit = if (checked && address != 0) MemoryGuard.unmapped(address)
}

/**
 * The C heap of this JVM. glibc keeps freed memory and gives it back on request (malloc_trim), through the JVM's
 * diagnostic command `System.trim_native_heap` if it has that (17.0.9 and newer, Linux). Any number of threads.
 */
private[incremental] object NativeHeap {
  private val command = new ObjectName("com.sun.management:type=DiagnosticCommand")

  /** Bytes from which a trim is worth its time: it walks through the whole heap. */
  private val minTrimmedBytes = 8L << 20
  private val freedSinceTrim = new AtomicLong

  /** Counts bytes that were freed. */
  def freed(bytes: Long): Unit = freedSinceTrim.addAndGet(bytes)

  /** Gives freed memory back to the operating system if enough was freed. */
  def trim(): Unit = if (freedSinceTrim.get >= minTrimmedBytes) {
    freedSinceTrim.set(0)
    Try(ManagementFactory.getPlatformMBeanServer.invoke(command, "systemTrimNativeHeap", null, null))
  }
}
