package org.apache.spark.sql.execution.streaming.state.incremental.agent

import org.apache.spark.{SparkConf, SparkEnv}
import org.apache.spark.sql.execution.streaming.state.incremental.settings.Declarations

/**
 * The Python that runs an agent.
 *
 * @param executable as it is started, relative to the executor's working directory or found on its PATH
 * @param origin where the choice comes from, for messages
 */
final case class Interpreter(executable: String, origin: String)

object Interpreter {
  val OptionKey: String = Declarations.key("agentPython")

  /** The one that the option names, or else the one that PySpark uses on this machine. */
  def choose(option: Option[String]): Interpreter = {
    val conf = Option(SparkEnv.get).map(_.conf).getOrElse(new SparkConf)
    def nonEmpty(text: Option[String]) = text.map(_.trim).filter(_.nonEmpty)
    nonEmpty(option).map(Interpreter(_, s"option $OptionKey"))
      .orElse(nonEmpty(conf.getOption("spark.pyspark.python")).map(Interpreter(_, "spark.pyspark.python")))
      .orElse(nonEmpty(sys.env.get("PYSPARK_PYTHON")).map(Interpreter(_, "variable PYSPARK_PYTHON")))
      .getOrElse(
        Interpreter("python3", "the default, as neither spark.pyspark.python nor PYSPARK_PYTHON is set"))
  }
}
