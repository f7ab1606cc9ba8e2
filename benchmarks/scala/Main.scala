package statestore.benchmark

import java.nio.file.Paths

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.ObjectMapper

import org.apache.spark.{SparkConf, SparkContext}

/**
 * Runs the store-level cases of a specification in this JVM and writes what it measured.
 *
 * Arguments: specification (JSON: `work` directory, `spark_conf`, `cases`), output (JSON lines). A Spark
 * context of two cores
 * runs underneath, so that providers find what they find in an executor.
 */
object Main {
  def main(args: Array[String]): Unit = {
    val spec = new ObjectMapper().readTree(Paths.get(args(0)).toFile)
    val events = new Events(Paths.get(args(1)))
    val conf = new SparkConf().setMaster("local[2]").setAppName("state store benchmark")
    spec.get("spark_conf").properties.forEach(option => conf.set(option.getKey, option.getValue.asText))
    val context = new SparkContext(conf)
    try {
      for (node <- spec.get("cases").elements.asScala) {
        new Case(node, Paths.get(spec.get("work").asText), events).run()
      }
    } finally {
      context.stop()
      events.close()
    }
  }
}
