package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.IOException

/** An SST that only RocksDB itself can read. */
private[incremental] final class UnsupportedSstException(message: String) extends IOException(message)
