package org.apache.spark.sql.execution.streaming.state.incremental

import java.io.File

/**
 * Reads a delta SST in key order: for the change feed. The value is null for a key that the batch removed; the
 * reserved record is left out.
 */
final class DeltaReader(file: File) extends EntryIterator {
  def advance(): Boolean = throw new UnsupportedOperationException(file.getPath)
  def key: Array[Byte] = null
  def value: Array[Byte] = null
  def close(): Unit = ()
}
