package org.apache.spark.sql.execution.streaming.state.incremental.base

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Reserved
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, Record}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.{Cursor, SstCursor}

/**
 * The rows of several runs as one, in key order: of entries with the same key the newest counts, and removed keys are
 * left out. The runs are in a heap, so that a run which is much larger than the others costs two comparisons a row. One
 * thread.
 *
 * @param openCursors the cursors of the reader; a closed cursor leaves the list
 * @param failed turns the error of a read into the exception to throw
 */
private[base] final class MergingCursor(
    files: Array[Array[LevelFile]],
    from: Array[Byte],
    until: Array[Byte],
    openCursors: java.util.ArrayList[MergingCursor],
    failed: Throwable => Throwable)
    extends Cursor {
  private val heap = new Array[RunCursor](files.length)
  private var size = 0
  private var top: SstCursor = _
  private var open = true
  private var failure: Throwable = _
  private var removed = 0L

  try begin()
  catch { case e: Throwable => fail(e) }

  /**
   * Ends the cursor with an error. Each later use throws the same exception: after a failure there is neither a next
   * row nor an end.
   */
  private def fail(error: Throwable): Nothing = {
    failure = failed(error)
    close()
    throw failure
  }

  private def begin(): Unit = {
    var i = 0
    while (i < files.length) {
      val overlapping = files(i).filter(_.overlaps(from, until))
      if (overlapping.length > 0) {
        val run = new RunCursor(overlapping, i)
        heap(size) = run
        size += 1
        run.seek(from)
        if (!run.valid) {
          size -= 1
          run.close()
        }
      }
      i += 1
    }
    i = size / 2
    while (i > 0) {
      i -= 1
      siftDown(i)
    }
    findTop()
  }

  def valid: Boolean = {
    if (failure != null) throw failure
    top != null
  }

  def keyAddress: Long = top.keyAddress
  def keyLength: Int = top.keyLength
  def valueAddress: Long = top.valueAddress
  def valueLength: Int = top.valueLength

  override def passed: Long = removed

  def next(): Unit = {
    if (!open) throw new IllegalStateException("A scan of a base is closed")
    try {
      skipKey()
      findTop()
    } catch { case e: Throwable => fail(e) }
  }

  /** Skips removed keys. Stops before the reserved keys, or at a removed key after the end of the range. */
  private def findTop(): Unit = {
    while (size > 0 && heap(0).cursor.valueLength == Record.removed && heap(0).cursor.isBefore(until)) {
      removed += 1
      skipKey()
    }
    val shows = size > 0 && heap(0).cursor.valueLength != Record.removed && heap(0).cursor.isBefore(Reserved.from)
    top = if (shows) heap(0).cursor else null
  }

  /** Moves all runs past the key on top. */
  private def skipKey(): Unit = {
    while (size > 1 && sameKey(1) || size > 2 && sameKey(2)) {
      val older = if (sameKey(1)) 1 else 2
      advance(older)
    }
    advance(0)
  }

  private def sameKey(i: Int): Boolean = i < size && {
    val a = heap(0).cursor
    val b = heap(i).cursor
    a.keyLength == b.keyLength && Bytes.equal(null, a.keyAddress, null, b.keyAddress, a.keyLength)
  }

  private def advance(i: Int): Unit = {
    heap(i).next()
    if (!heap(i).valid) {
      heap(i).close()
      size -= 1
      heap(i) = heap(size)
      heap(size) = null
    }
    if (i < size) siftDown(i)
  }

  private def less(a: RunCursor, b: RunCursor): Boolean = {
    val order = Bytes.compare(
      null, a.cursor.keyAddress, a.cursor.keyLength, null, b.cursor.keyAddress, b.cursor.keyLength)
    order < 0 || order == 0 && a.age < b.age
  }

  private def siftDown(from: Int): Unit = {
    var i = from
    while (2 * i + 1 < size) {
      val leftChild = 2 * i + 1
      val child = if (leftChild + 1 < size && less(heap(leftChild + 1), heap(leftChild))) leftChild + 1 else leftChild
      if (!less(heap(child), heap(i))) return
      val run = heap(i)
      heap(i) = heap(child)
      heap(child) = run
      i = child
    }
  }

  def close(): Unit = if (open) {
    open = false
    top = null
    while (size > 0) {
      size -= 1
      heap(size).close()
    }
    openCursors.remove(this)
  }
}

/**
 * A cursor over the entries of files that follow each other in key order, removals included, from a key on. It holds
 * one file at a time.
 *
 * @param age 0 for the newest of several runs
 */
private[base] final class RunCursor(files: Array[LevelFile], val age: Int) {
  private var file = -1
  private var held: CachedTable = _
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
    close()
    if (file < files.length) {
      current = new SstCursor(files(file).table.hold())
      held = files(file).table
    }
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

  /** Closes the cursor and releases its file. May be called repeatedly. */
  def close(): Unit = if (current != null) {
    current.close()
    current = null
    held.release()
  }
}
