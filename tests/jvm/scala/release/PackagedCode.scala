package org.apache.spark.sql.execution.streaming.state.incremental.release

import java.nio.file.Files

/** Prints what becomes of the package's code for workers when others remove it, or its directory cannot be made. */
object PackagedCode {
  def main(arguments: Array[String]): Unit = {
    val first = Jar.pythonCode.get
    val bytes = Files.size(first)
    Files.delete(first)
    Files.delete(first.getParent)
    val again = Jar.pythonCode.get
    println(s"the same: ${again == first && Files.size(again) == bytes && bytes > 0}")
    Files.delete(again)
    Files.delete(again.getParent)
    Files.createFile(again.getParent)
    println(s"without a directory: ${Jar.pythonCode}")
  }
}
