package org.apache.spark.sql.execution.streaming.state.incremental.delta

/**
 * One change of a key, as a delta keeps it.
 *
 * @param value      null: the key was removed
 * @param isAppended whether the value was appended to those that the key had
 */
final case class Change(key: Array[Byte], value: Array[Byte], isAppended: Boolean)
