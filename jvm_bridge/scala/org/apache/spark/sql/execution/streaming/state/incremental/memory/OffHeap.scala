package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.nio.{Buffer, ByteBuffer}

import org.apache.spark.storage.StorageUtils
import org.apache.spark.unsafe.Platform
import sun.misc.Unsafe

/**
 * Memory outside the heap, and arrays, by place: an object and an offset as of Unsafe, an array and an offset from its
 * beginning, or null and an address. All that the data plane reads and writes there goes through here.
 *
 * With `-DincrementalStateStore.checkMemory=true` each access must lie within an array or within one piece of memory
 * that was allocated and not yet freed, else it is a [[MemoryFault]]; see [[MemoryGuard]]. Without it nothing is checked
 * and the checks are not compiled into the machine's code.
 */
private[incremental] object OffHeap {

  /** The system property that switches the checks on. */
  val property = "incrementalStateStore.checkMemory"

  val checked: Boolean = java.lang.Boolean.getBoolean(property)

  /** The offset of the first element of an array. */
  val arrayBase: Int = Platform.BYTE_ARRAY_OFFSET
  val longArrayBase: Int = Platform.LONG_ARRAY_OFFSET

  /** The offset of a direct buffer's address; `Platform.getDirectBufferAddress` came with Spark 4.2. */
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

  /** This many bytes, with anything in them; until [[free]]. */
  def allocate(bytes: Long): Long = {
    if (checked) MemoryGuard.beforeUse()
    val address = Platform.allocateMemory(bytes)
    if (checked) MemoryGuard.allocated(address, bytes)
    address
  }

  def free(address: Long): Unit = if (checked) MemoryGuard.free(address) else Platform.freeMemory(address)

  /** Notes that a local file is about to be opened, read, written or mapped: a test lets that fail. */
  def fileUse(): Unit = if (checked) MemoryGuard.beforeFileUse()

  /** A buffer outside the heap, which the garbage collector frees, or [[dispose]]. */
  def buffer(bytes: Int): ByteBuffer = {
    val made = ByteBuffer.allocateDirect(bytes)
    if (checked) MemoryGuard.collected(made)
    made
  }

  /** Frees a buffer at once; nobody has it any more. */
  def dispose(buffer: ByteBuffer): Unit = {
    if (checked) MemoryGuard.unmapped(addressOf(buffer))
    StorageUtils.dispose(buffer)
  }

  /** Where a buffer of [[buffer]], or a mapping of [[mapped]], begins. */
  def addressOf(buffer: ByteBuffer): Long = Platform.getLong(buffer, bufferAddress)

  /** Notes that a file is mapped: its address. Until [[unmapped]], which comes before the mapping goes. */
  def mapped(mapping: ByteBuffer): Long = {
    val address = addressOf(mapping)
    if (checked && mapping.capacity > 0) MemoryGuard.mapped(address, mapping.capacity)
    address
  }

  def unmapped(address: Long): Unit = if (checked && address != 0) MemoryGuard.unmapped(address)
}
