package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.io.File
import java.nio.file.Files

/** Reads many SST files in turns and prints the highest number of descriptors. Argument: the number of files. */
object Descriptors {
  def main(arguments: Array[String]): Unit = {
    val directory = Files.createTempDirectory("descriptors")
    val files = (0 until arguments(0).toInt).map { number =>
      val path = directory.resolve(s"$number.sst")
      Files.write(path, Array.fill(64)(number.toByte))
      new SstFile(path.toFile)
    }
    var highest = 0
    for (_ <- 1 to 2; (file, number) <- files.zipWithIndex) {
      require(file.read(8, 8).forall(_ == number.toByte), s"file $number has other bytes")
      if (number % 50 == 0) highest = math.max(highest, descriptors(directory.toFile))
    }
    files.foreach(_.close())
    require(descriptors(directory.toFile) == 0, "descriptors are left")
    files.foreach(file => Files.delete(file.file.toPath))
    Files.delete(directory)
    println(s"$highest descriptors at most")
  }

  private def descriptors(directory: File): Int =
    new File("/proc/self/fd").listFiles.count(_.getCanonicalPath.startsWith(directory.getCanonicalPath))
}
