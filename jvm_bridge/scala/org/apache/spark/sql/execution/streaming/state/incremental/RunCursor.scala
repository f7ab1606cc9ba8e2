package org.apache.spark.sql.execution.streaming.state.incremental

/**
 * Goes through the entries of files that follow each other in key order, removals too, from a key on.
 *
 * @param age 0 for the newest of several runs
 */
private[incremental] final class RunCursor(files: Array[LevelFile], val age: Int) {
  private var file = -1
  private var current: SstCursor = _

  def cursor: SstCursor = current
  def valid: Boolean = current != null && current.valid

  def seek(from: Array[Byte]): Unit = {
    var i = 0
    while (i < files.length && java.util.Arrays.compareUnsigned(files(i).largest, from) < 0) i += 1
    file = i
    open()
    if (current != null) current.seek(from)
    skip()
  }

  private def open(): Unit = {
    if (current != null) current.close()
    current = if (file < files.length) new SstCursor(files(file).table) else null
  }

  private def skip(): Unit =
    while (current != null && !current.valid) {
      file += 1
      open()
      if (current != null) current.seekToFirst()
    }

  def next(): Unit = {
    current.next()
    if (!current.valid) skip()
  }

  def close(): Unit = if (current != null) current.close()
}
