package org.apache.spark.sql.execution.streaming.state.incremental.transaction

import java.io.File

/**
 * Settings of one store's data plane.
 *
 * @param spillDirectory local directory, made when first needed, for memory-mapped files that take what the memory
 *     budget has no room for; they have no name once they are open
 * @param fewestPassed   how many removed keys one after the other scans in key order remember, to pass over them later
 */
final case class StateConf(spillDirectory: File, fewestPassed: Int = 256)
