package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.{File, RandomAccessFile}
import java.nio.file.Files
import java.util.concurrent.atomic.AtomicLong

import org.apache.spark.sql.execution.streaming.state.incremental.sst.SstTable

/** SSTs below a directory of which only the metadata is there, until more is asked for. Any number of threads. */
final class FarFiles(directory: File, files: Seq[File]) {
  private val content = files.map { file =>
    directory.toPath.relativize(file.toPath).toString -> Files.readAllBytes(file.toPath)
  }.toMap
  private val dataBytes = files.map(FarFiles.dataBytes)
  private val fetched = new AtomicLong

  /** As paths below the directory. */
  val names: Set[String] = content.keySet

  def fetchedBytes: Long = fetched.get

  /** Punches holes where data is. */
  def forget(): Unit = files.zip(dataBytes).foreach { case (file, data) =>
    val whole = content(directory.toPath.relativize(file.toPath).toString)
    Files.write(file.toPath, Array.fill[Byte](data)(0) ++ whole.drop(data))
  }

  /** Changes bytes, where the file has any. */
  def damage(name: String, offset: Long, length: Long): Unit = {
    val until = math.min(offset + length, content(name).length)
    if (offset < until) {
      val access = new RandomAccessFile(new File(directory, name), "rw")
      try {
        access.seek(offset)
        access.write(content(name).slice(offset.toInt, until.toInt).map(byte => (byte ^ 0x55).toByte))
      } finally access.close()
    }
  }

  def fetch(name: String, offset: Long, length: Long): Unit = {
    val access = new RandomAccessFile(new File(directory, name), "rw")
    try {
      access.seek(offset)
      access.write(content(name), offset.toInt, math.min(length, content(name).length - offset).toInt)
    } finally access.close()
    fetched.addAndGet(length)
  }
}

object FarFiles {
  /** Where the data blocks of an SST end, and its metadata begins, which is verified when it is opened. */
  def dataBytes(file: File): Int = {
    val table = SstTable.map(file)
    try {
      val last = table.block(table.blocks - 1)
      (last.offset + last.bytes + 5).toInt
    } finally table.close()
  }
}
