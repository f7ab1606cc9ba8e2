package org.apache.spark.sql.execution.streaming.state.incremental.vectorized

/**
 * How a marked function wants its groups. The mark is the name under which the function stands in the plan: a
 * name is the one thing about a Python function that reaches the planner by every road, Spark Connect
 * included.
 */
private[vectorized] sealed trait GroupsMode extends Serializable {
  /** Whether states travel pickled, as Spark's own operator sends them, and not as Arrow columns. */
  def pickledStates: Boolean
}

private[vectorized] object GroupsMode {
  /**
   * Many groups at a time: rows and states are Arrow columns. The function is called once for all of them, or
   * for each with values that the worker makes of the columns.
   */
  case object Vectorized extends GroupsMode { override val pickledStates = false }

  /** One call a group, of a function in Spark's own form. */
  case object Accelerated extends GroupsMode { override val pickledStates = true }

  /** The mode of a function with this name, if the name carries a mark. */
  def of(name: String): Option[GroupsMode] =
    if (!name.endsWith(")")) None
    else if (name.startsWith("state_store.vectorized(") || name.startsWith("state_store.per_group("))
      Some(Vectorized)
    else if (name.startsWith(AcceleratedPrefix)) Some(Accelerated)
    else None

  /** The marked name of an ordinary function. */
  def acceleratedName(name: String): String = s"$AcceleratedPrefix$name)"

  private val AcceleratedPrefix = "state_store.accelerate("
}
