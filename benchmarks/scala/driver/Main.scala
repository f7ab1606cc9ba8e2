package statestore.benchmark

import java.nio.file.Paths

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.ObjectMapper

import org.apache.spark.sql.SparkSession

/**
 * Runs the store-level cases of a specification in this JVM and writes the measurements.
 *
 * Arguments: specification (JSON: `work` directory, `spark_conf`, `cases`), output (JSON lines). It starts a Spark
 * session of two cores, so that providers find the environment of an executor.
 */
object Main {
  def main(args: Array[String]): Unit = {
    val spec = new ObjectMapper().readTree(Paths.get(args(0)).toFile)
    val events = new Events(Paths.get(args(1)))
    val builder = SparkSession.builder().master("local[2]").appName("state store benchmark")
    spec.get("spark_conf").properties.forEach { option =>
      builder.config(option.getKey, option.getValue.asText)
    }
    val session = builder.getOrCreate()
    session.streams // creates the coordinator that providers ask
    try {
      for (node <- spec.get("cases").elements.asScala) {
        new Case(node, Paths.get(spec.get("work").asText), events).run()
      }
    } finally {
      session.stop()
      events.close()
    }
  }
}
