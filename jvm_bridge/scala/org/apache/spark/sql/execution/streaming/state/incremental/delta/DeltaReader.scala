package org.apache.spark.sql.execution.streaming.state.incremental.delta

import java.io.{File, IOException}
import java.util.Arrays

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Reserved
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, Record}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.{SstCursor, SstRoom, SstTable}

/**
 * Reads a delta SST for the change feed: first the changes that later ones of the batch replaced, in order of
 * time, then the last change of each key, in key order. The value is null where a key was removed; the
 * reserved record is left out. One thread.
 *
 * Of any length; a block's checksum is verified when the block is read.
 *
 * @throws java.io.IOException when the file cannot be read, is damaged, or is no SST; of [[advance]], too
 */
final class DeltaReader(file: File) extends AutoCloseable {
  private val table = SstTable.read(file)
  private val cursor = new SstCursor(table)
  private val room = new SstRoom
  private val overwritten = OverwrittenChanges.rows(table, room)
  private var begun = false
  private var read = 0L
  private var open = true
  private var currentKey: Array[Byte] = _
  private var currentValue: Array[Byte] = _

  /** Of the change that the last [[advance]] moved to; arrays that the caller may keep. */
  def key: Array[Byte] = currentKey
  def value: Array[Byte] = currentValue

  /** Moves to the next change; false when there is none, again and again. */
  def advance(): Boolean = {
    if (!open) false
    else if (overwritten.hasNext) {
      val (key, value) = overwritten.next()
      currentKey = key
      currentValue = value
      true
    } else {
      if (begun) cursor.next() else cursor.seekToFirst()
      begun = true
      val found = cursor.valid && Bytes.compare(Reserved.from, cursor.keyAddress, cursor.keyLength) > 0
      if (found) {
        currentKey = Bytes.array(cursor.keyAddress, cursor.keyLength)
        currentValue =
          if (cursor.valueLength == Record.removed) null else Bytes.array(cursor.valueAddress, cursor.valueLength)
        read += 1
      } else {
        checkEnd()
        close()
      }
      found
    }
  }

  /** The reserved record, and it alone, follows the changes. */
  private def checkEnd(): Unit =
    if (!cursor.valid || !Arrays.equals(Reserved.metaKey, cursor.key) || read + 1 != table.entries) {
      throw new IOException(s"$file is no whole delta: it ends after $read of ${table.entries} records")
    }

  /** Any number of times; a reader that reached its end is closed. */
  def close(): Unit = if (open) {
    open = false
    currentKey = null
    currentValue = null
    cursor.close()
    room.free()
    table.close()
  }
}
