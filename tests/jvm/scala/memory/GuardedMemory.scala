package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.io.File
import java.nio.ByteBuffer
import java.nio.file.Files

import scala.util.{Failure, Try}

import org.apache.spark.sql.execution.streaming.state.incremental.TestFiles
import org.apache.spark.unsafe.Platform

/**
 * Uses memory outside the heap in each of the wrong ways: with the checks on, each is an error that names the place.
 */
object GuardedMemory {
  def main(arguments: Array[String]): Unit = {
    val directory = Files.createTempDirectory("guarded-memory").toFile
    try {
      expect(OffHeap.checked, "the checks are off")
      accessesKeepToTheirPiece(directory)
      freedMemoryIsRefused(directory)
      writesToFreedMemoryAreSeen(directory)
      accessesKeepToTheirArray()
      piecesDoNotOverlap()
      println("every fault is found")
    } finally TestFiles.delete(directory)
  }

  private def expect(condition: Boolean, message: => String): Unit = if (!condition) throw new AssertionError(message)

  private def faults(use: String, says: String, causes: String*)(action: => Any): Unit = Try(action) match {
    case Failure(fault: MemoryFault) =>
      expect(fault.getMessage.contains(says), s"$use: ${fault.getMessage}")
      val found = Iterator.iterate[Throwable](fault.getCause)(_.getCause).takeWhile(_ != null).map(_.getMessage).toSeq
      expect(found.length == causes.length && found.zip(causes).forall { case (a, b) => a.startsWith(b) },
        s"$use: $found")
    case other => throw new AssertionError(s"$use: $other")
  }

  private def segments(directory: File): Seq[Segment] =
    Seq(new StoreMemory(1L << 20), new StoreMemory(0)).map(_.allocate(100, directory)) // from the budget, and a file

  private def accessesKeepToTheirPiece(directory: File): Unit = segments(directory).foreach { segment =>
    OffHeap.putLong(null, segment.address + 92, 1)
    val wrong = Seq[() => Any](
      () => OffHeap.putLong(null, segment.address + 93, 1),
      () => OffHeap.getInt(null, segment.address + 97),
      () => OffHeap.setMemory(segment.address, 0, 101),
      () => OffHeap.copyMemory(null, segment.address + 1, new Array[Byte](100), OffHeap.arrayBase, 100),
      () => OffHeap.copyMemory(new Array[Byte](100), OffHeap.arrayBase, null, segment.address + 1, 100))
    wrong.foreach(use => faults("beyond the end", "reach beyond the 100 bytes", "allocated here")(use()))
    faults("before the beginning", "")(OffHeap.getByte(null, segment.address - 1))
    segment.free()
  }

  private def freedMemoryIsRefused(directory: File): Unit = segments(directory).foreach { segment =>
    val address = segment.address
    segment.free()
    faults("read after the end", "were freed", "freed here", "allocated here")(OffHeap.getLong(null, address))
    faults("written after the end", "were freed", "freed here", "allocated here")(
      OffHeap.putByte(null, address + 99, 1))
    faults("freed twice", "it was before", "freed here", "allocated here")(segment.free())
    faults("freed elsewhere", "nobody's")(OffHeap.free(address + 1))
  }

  /**
   * Code that bypasses the checks, native code for example, is found when the memory that it wrote to is given back.
   */
  private def writesToFreedMemoryAreSeen(directory: File): Unit = {
    val memory = new StoreMemory(1L << 30)
    val segment = memory.allocate(1 << 20, directory)
    OffHeap.putLong(null, segment.address, 1)
    segment.free()
    expect(Platform.getLong(null, segment.address) != 1, "freed memory still has its content")
    Platform.putByte(null, segment.address + 1000, 7)
    faults("written in secret", "Byte 1000 of memory that was freed", "freed here", "allocated here") {
      for (_ <- 0 until 100) memory.allocate(1 << 20, directory).free()
    }
  }

  private def accessesKeepToTheirArray(): Unit = {
    val bytes = new Array[Byte](10)
    val longs = new Array[Long](2)
    OffHeap.putLong(bytes, OffHeap.arrayBase + 2, 1)
    OffHeap.putLong(longs, OffHeap.longArrayBase + 8, 1)
    faults("beyond an array", "8 bytes at 3 of an array of 10")(OffHeap.putLong(bytes, OffHeap.arrayBase + 3, 1))
    faults("beyond an array", "8 bytes at 9 of an array of 16")(OffHeap.getLong(longs, OffHeap.longArrayBase + 9))
    faults("before an array", "1 bytes at -1 of")(OffHeap.getByte(bytes, OffHeap.arrayBase - 1))
  }

  private def piecesDoNotOverlap(): Unit = {
    val buffer = ByteBuffer.allocateDirect(100)
    def part(from: Int, bytes: Int): ByteBuffer = buffer.slice(from, bytes)
    val noted = Seq(part(40, 20), part(20, 20), part(60, 10)).map(OffHeap.mapped)
    for (other <- Seq(part(30, 40), part(50, 5), part(0, 21), part(69, 10), part(0, 100), part(40, 20))) {
      faults("given twice", "were given to two", "allocated here")(OffHeap.mapped(other))
    }
    noted.foreach(OffHeap.unmapped)
    OffHeap.unmapped(OffHeap.mapped(buffer))
    val collected = OffHeap.buffer(100) // nobody may have reported its end yet
    OffHeap.unmapped(OffHeap.mapped(collected.slice(50, 50)))
    faults("collected", "belong to nobody")(OffHeap.getByte(null, OffHeap.addressOf(collected)))
  }
}
