package org.apache.spark.sql.execution.streaming.state.incremental.release

/** Prints the problem of the state store's jars on the class path, or that there is none. */
object WhichJars {
  def main(arguments: Array[String]): Unit = println(Jar.problem.getOrElse("one jar, for this Spark"))
}
