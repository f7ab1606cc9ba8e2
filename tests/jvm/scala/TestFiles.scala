package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.File
import java.nio.file.Files
import java.util.zip.CRC32

object TestFiles {
  def delete(file: File): Unit = {
    Option(file.listFiles).toSeq.flatten.foreach(delete)
    file.delete()
  }

  def crc32(file: File): Long = {
    val crc = new CRC32
    crc.update(Files.readAllBytes(file.toPath))
    crc.getValue
  }
}
