package org.apache.spark.sql.execution.streaming.state.incremental.release

import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec

/** The columns that a processor in Python gives, before Spark lets them be null where they must. */
object PythonProcessorOutput {
  def of(exec: TransformWithStateInPySparkExec): Seq[Attribute] = exec.outputAttrs
}
