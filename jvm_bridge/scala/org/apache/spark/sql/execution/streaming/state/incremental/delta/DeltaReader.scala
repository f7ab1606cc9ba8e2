package org.apache.spark.sql.execution.streaming.state.incremental.delta

import java.io.{File, IOException}
import java.nio.ByteBuffer
import java.util.Arrays

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{DeltaMetadata, Reserved}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, Record}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.{SstCursor, SstRoom, SstTable}

/**
 * Reads a delta SST for the change feed: first the changes that the last change of a key does not show, in order of
 * time, then the last change of each key, in key order. The value is null where a key was removed; the reserved
 * record is left out, and so is the last change of a key that was appended to, which the first ones have told in full.
 * One thread. Takes heap for the keys that were appended to.
 *
 * Of any length; a block's checksum is verified when the block is read.
 *
 * @throws java.io.IOException when the file cannot be read, is damaged, or is no SST; of [[advance]], too;
 *     an UnknownFormatException when its format is not known
 */
final class DeltaReader(file: File) extends AutoCloseable {
  private val table = SstTable.read(file)
  private val cursor = new SstCursor(table)
  private val room = new SstRoom
  private val told = new java.util.HashSet[ByteBuffer]
  private var begun = false
  private var read = 0L
  private var open = true
  private var current: Change = _
  private val earlier =
    try {
      checkFormat()
      OverwrittenChanges.in(table, room)
    } catch {
      case e: Throwable =>
        close()
        throw e
    }

  /** Of the change that the last [[advance]] moved to; arrays that the caller may keep. */
  def key: Array[Byte] = current.key
  def value: Array[Byte] = current.value

  /** Whether the value was appended to those of the key. */
  def isAppended: Boolean = current.isAppended

  /** Moves to the next change; false when there is none, again and again. */
  def advance(): Boolean = {
    if (!open) false
    else if (earlier.hasNext) {
      current = earlier.next()
      if (current.isAppended) told.add(ByteBuffer.wrap(current.key))
      true
    } else {
      while (advanceCursor()) {
        val key = Bytes.array(cursor.keyAddress, cursor.keyLength)
        if (told.isEmpty || !told.contains(ByteBuffer.wrap(key))) {
          val value =
            if (cursor.valueLength == Record.removed) null else Bytes.array(cursor.valueAddress, cursor.valueLength)
          current = Change(key, value, isAppended = false)
          return true
        }
      }
      checkEnd()
      close()
      false
    }
  }

  private def checkFormat(): Unit = {
    cursor.seek(Reserved.metaKey)
    if (!cursor.valid || !Arrays.equals(Reserved.metaKey, cursor.key) || cursor.valueLength == Record.removed) {
      throw new IOException(s"$file is no whole delta: it lacks the reserved record")
    }
    DeltaMetadata.parse(Bytes.array(cursor.valueAddress, cursor.valueLength), file.getPath)
  }

  private def advanceCursor(): Boolean = {
    if (begun) cursor.next() else cursor.seekToFirst()
    begun = true
    val found = cursor.valid && Bytes.compare(Reserved.from, cursor.keyAddress, cursor.keyLength) > 0
    if (found) read += 1
    found
  }

  /** The reserved record, and it alone, follows the changes. */
  private def checkEnd(): Unit =
    if (!cursor.valid || !Arrays.equals(Reserved.metaKey, cursor.key) || read + 1 != table.entries) {
      throw new IOException(s"$file is no whole delta: it ends after $read of ${table.entries} records")
    }

  /** Any number of times; a reader that reached its end is closed. */
  def close(): Unit = if (open) {
    open = false
    current = null
    told.clear()
    cursor.close()
    room.free()
    table.close()
  }
}
