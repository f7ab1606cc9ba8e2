package org.apache.spark.sql.execution.streaming.state.incremental.release

/** Prints what is wrong with the state store's jars on the class path, or that nothing is. */
object WhichJars {
  def main(arguments: Array[String]): Unit = println(Jar.problem.getOrElse("one jar, for this Spark"))
}
