package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.io.File
import java.nio.file.Files

/** Files that are all in use, of which only so many have a descriptor: `Descriptors FILES` says how many at most. */
object Descriptors {
  def main(arguments: Array[String]): Unit = {
    val directory = Files.createTempDirectory("descriptors")
    val files = (0 until arguments(0).toInt).map { number =>
      val path = directory.resolve(s"$number.sst")
      Files.write(path, Array.fill(64)(number.toByte))
      new SstFile(path.toFile)
    }
    var most = 0
    for (_ <- 1 to 2; (file, number) <- files.zipWithIndex) {
      require(file.read(8, 8).forall(_ == number.toByte), s"file $number has other bytes")
      if (number % 50 == 0) most = math.max(most, descriptors(directory.toFile))
    }
    files.foreach(_.close())
    require(descriptors(directory.toFile) == 0, "descriptors are left")
    files.foreach(file => Files.delete(file.file.toPath))
    Files.delete(directory)
    println(s"$most descriptors at most")
  }

  private def descriptors(directory: File): Int =
    new File("/proc/self/fd").listFiles.count(_.getCanonicalPath.startsWith(directory.getCanonicalPath))
}
