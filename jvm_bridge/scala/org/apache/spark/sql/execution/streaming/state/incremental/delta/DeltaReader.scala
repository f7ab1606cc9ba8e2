package org.apache.spark.sql.execution.streaming.state.incremental.delta

import java.io.{File, IOException}
import java.nio.ByteBuffer
import java.util.Arrays

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{DeltaMetadata, Reserved}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, Record}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.{SstCursor, SstRoom, SstTable}

/**
 * A reader of a delta SST for the change feed. It shows first the changes that the last change of a key hides, in order
 * of time, and then the last change of each key, in key order. The value is null for a removed key. The reserved record
 * is left out, and so is the last change of a key with appended values, whose changes were all shown before. The file
 * may have any length; a block is verified when it is read. One thread. Takes heap for the keys with appended values.
 *
 * @throws java.io.IOException if the file cannot be read, is damaged, or is no SST, also from [[advance]]; an
 *     UnknownFormatException if its format is not known
 */
final class DeltaReader(file: File) extends AutoCloseable {
  private val table = SstTable.read(file)
  private val cursor = new SstCursor(table)
  private val room = new SstRoom
  private val shown = new java.util.HashSet[ByteBuffer]
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

  /** Key and value of the change that the last [[advance]] moved to; arrays that the caller may keep. */
  def key: Array[Byte] = current.key
  def value: Array[Byte] = current.value

  /** True if the value was appended to those of the key. */
  def isAppended: Boolean = current.isAppended

  /** Moves to the next change. Returns false if there is none, and on each later call. */
  def advance(): Boolean = {
    if (!open) false
    else if (earlier.hasNext) {
      current = earlier.next()
      if (current.isAppended) shown.add(ByteBuffer.wrap(current.key))
      true
    } else {
      while (advanceCursor()) {
        val key = Bytes.array(cursor.keyAddress, cursor.keyLength)
        if (shown.isEmpty || !shown.contains(ByteBuffer.wrap(key))) {
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
      throw new IOException(s"$file is an incomplete delta: it lacks the reserved record")
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

  /** Checks that the reserved record, and nothing else, follows the changes. */
  private def checkEnd(): Unit =
    if (!cursor.valid || !Arrays.equals(Reserved.metaKey, cursor.key) || read + 1 != table.entries) {
      throw new IOException(s"$file is an incomplete delta: it ends after $read of ${table.entries} records")
    }

  /** Closes the reader, which also closes itself at its end. May be called repeatedly. */
  def close(): Unit = if (open) {
    open = false
    current = null
    shown.clear()
    cursor.close()
    room.free()
    table.close()
  }
}

/**
 * Change of a key, as a delta keeps it.
 *
 * @param value null: the key was removed
 * @param isAppended true if the value was appended to those that the key had
 */
final case class Change(key: Array[Byte], value: Array[Byte], isAppended: Boolean)
