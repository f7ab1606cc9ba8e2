package org.apache.spark.sql.execution.streaming.state.incremental.vectorized

import org.apache.spark.api.python.SimplePythonFunction
import org.apache.spark.sql.catalyst.expressions.PythonUDF
import org.apache.spark.sql.execution.streaming.state.incremental.processors.PickledCall

/** Wraps an ordinary Python function, known to the JVM only as pickled bytes, into an accelerated one. */
private[vectorized] object PickledCommand {
  private val Module = "state_store.functions.accelerated"
  private val Function = "accelerated_command"

  def accelerated(udf: PythonUDF): PythonUDF = {
    val f = udf.func
    val wrapped = SimplePythonFunction(
      PickledCall(Module, Function, f.command.toArray), f.envVars, f.pythonIncludes, f.pythonExec, f.pythonVer,
      f.broadcastVars, f.accumulator)
    udf.copy(name = GroupsMode.acceleratedName(udf.name), func = wrapped)
  }
}
