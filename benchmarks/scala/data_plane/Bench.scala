package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.File
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.file.Files

/** What the benchmarks of the data plane alone share. */
private[incremental] object Bench {

  /**
   * Runs with settings and in a directory of its own, which is gone afterwards.
   *
   * @param arguments settings, name=value; `directory` is where the directory is made
   * @param defaults  settings that are not among the arguments
   */
  def run(name: String, arguments: Array[String], defaults: (String, String)*)(
      body: (Map[String, String], File) => Unit): Unit = {
    val given = arguments.map(_.split("=", 2)).map(argument => argument(0) -> argument(1))
    val settings = Map("directory" -> System.getProperty("java.io.tmpdir")) ++ defaults ++ given
    val directory = Files.createTempDirectory(new File(settings("directory")).toPath, name).toFile
    try body(settings, directory)
    finally delete(directory)
  }

  private def delete(file: File): Unit = {
    Option(file.listFiles).toSeq.flatten.foreach(delete)
    file.delete()
  }

  /** As Spark encodes a row of one string, after the column family: null bits, offset and size, the characters. */
  def key(n: Long): Array[Byte] = {
    val buffer = ByteBuffer.allocate(2 + 8 + 8 + 16).order(ByteOrder.LITTLE_ENDIAN)
    buffer.putShort(0).putLong(0).putInt(16).putInt(16)
    buffer.put(f"key-$n%012d".getBytes("US-ASCII")).array
  }
}
