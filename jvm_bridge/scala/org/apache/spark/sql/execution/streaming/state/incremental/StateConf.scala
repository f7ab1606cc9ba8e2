package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.File

/**
 * Settings of one store's data plane.
 *
 * @param spillDirectory local directory for memory-mapped files that take what the memory budget has no room
 *     for
 *                       (made when first needed); they have no name once they are open
 */
final case class StateConf(spillDirectory: File)
