package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.io.File
import java.nio.channels.FileChannel
import java.nio.file.{Files, StandardOpenOption}

import org.apache.spark.sql.execution.streaming.state.incremental.TestFiles
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{OffHeap, StoreMemory}

/**
 * A key of more than 1 GiB, which earlier releases accepted: a cursor shows it. The cursor's buffer for keys must not
 * double, since no array is as long.
 */
object LongKey {
  private val keyBytes = 1100 << 20
  private val memory = new StoreMemory(64L << 20)

  def main(arguments: Array[String]): Unit = {
    val directory = Files.createTempDirectory("long-key").toFile
    try {
      val file = new File(directory, "long.sst")
      write(file)
      read(file)
      println(s"a key of $keyBytes bytes was read")
    } finally TestFiles.delete(directory)
  }

  private def expect(condition: Boolean, message: => String): Unit = if (!condition) throw new AssertionError(message)

  /** Writes three keys, of which the second begins with the first and is long. */
  private def write(file: File): Unit = {
    val channel = FileChannel.open(file.toPath, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)
    val sst = new SstWriter(channel, 3, memory, file.getParentFile)
    val key = OffHeap.allocate(keyBytes)
    val last = OffHeap.allocate(1)
    try {
      OffHeap.setMemory(key, 'a', keyBytes)
      OffHeap.putByte(null, last, 'z')
      sst.add(key, 2, key, 1)
      sst.add(key, keyBytes, key, 2)
      sst.add(last, 1, key, 3)
      sst.finish(_ => Nil)
    } finally {
      sst.close()
      channel.close()
      OffHeap.free(key)
      OffHeap.free(last)
    }
  }

  private def read(file: File): Unit = {
    val table = SstTable.read(file)
    val cursor = new SstCursor(table)
    try {
      cursor.seekToFirst()
      for ((length, value) <- Seq(2 -> 1, keyBytes -> 2, 1 -> 3)) {
        expect(cursor.valid && cursor.keyLength == length && cursor.valueLength == value,
          s"a key of ${cursor.keyLength} bytes, and a value of ${cursor.valueLength}, in place of $length and $value")
        val (first, end) =
          (OffHeap.getByte(null, cursor.keyAddress), OffHeap.getByte(null, cursor.keyAddress + length - 1))
        expect(first == end && first == (if (value == 3) 'z' else 'a'), s"the key of $length bytes is another")
        cursor.next()
      }
      expect(!cursor.valid, "there are more keys")
    } finally {
      cursor.close()
      table.close()
    }
  }
}
