package org.apache.spark.sql.execution.streaming.state.incremental

/** Reads the files of a [[TableBase]], for one transaction. */
private[incremental] final class TableBaseReader(runs: Array[Array[LevelFile]]) extends BaseReader {
  private val finder = new SstFinder
  private val cursors = new java.util.ArrayList[RunsCursor]

  def get(hash: Long, key: Array[Byte]): Array[Byte] =
    if (find(hash, key) && finder.valueLength != Record.removed) Bytes.array(finder.valueAddress, finder.valueLength)
    else null

  def contains(hash: Long, key: Array[Byte]): Boolean = find(hash, key) && finder.valueLength != Record.removed

  /** Whether a file has an entry of the key; the newest is in the finder then. */
  private def find(hash: Long, key: Array[Byte]): Boolean = {
    var i = 0
    while (i < runs.length) {
      val run = runs(i)
      val file = if (run.length == 1) run(0) else run(fileOf(run, key))
      if (file.mayHold(key) && file.table.mayContain(hash) && finder.find(file.table, key)) return true
      i += 1
    }
    false
  }

  /** The first file whose largest key is not less; the last when there is none. */
  private def fileOf(run: Array[LevelFile], key: Array[Byte]): Int = {
    var low = 0
    var high = run.length - 1
    while (low < high) {
      val middle = (low + high) >>> 1
      if (java.util.Arrays.compareUnsigned(run(middle).largest, key) < 0) low = middle + 1 else high = middle
    }
    low
  }

  def cursor(from: Array[Byte], until: Array[Byte]): Cursor = {
    val cursor = new RunsCursor(runs, from, until, cursors)
    cursors.add(cursor)
    cursor
  }

  /** Closes its cursors too. */
  def close(): Unit = new java.util.ArrayList(cursors).forEach(_.close())
}
