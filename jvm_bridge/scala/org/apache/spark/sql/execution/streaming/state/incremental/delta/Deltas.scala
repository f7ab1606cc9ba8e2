package org.apache.spark.sql.execution.streaming.state.incremental.delta

import java.io.{File, IOException}
import java.nio.ByteBuffer
import java.nio.channels.FileChannel
import java.nio.file.{Files, StandardOpenOption}
import java.util.{Arrays, Locale}

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{DeltaFile, DeltaMetadata, Reserved}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{
  Arena, Bytes, MergedRecords, OffHeap, OrderedRecords, Record, SortedRuns, StoreMemory
}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.{
  SstBlockWriter, SstCursor, SstHandle, SstRoom, SstTable, SstWriter
}

// The delta of a batch as a file: written in key order, with the changes that later ones of the batch hide, and read
// back by the change feed.

/**
 * Writes changed records as a delta SST, in key order, then the reserved record, and opens the file once as a reader
 * does. If that fails no file is left. One thread.
 *
 * @param records the records; [[free]] frees them
 * @param count number of records
 * @param overwritten changes that the records replaced
 * @param memory memory for the writer, before files of `spillDirectory`
 */
private[incremental] final class DeltaWriter(
    records: SortedRuns,
    count: Int,
    overwritten: OverwrittenChanges,
    memory: StoreMemory,
    spillDirectory: File) {
  /**
   * Writes the file.
   *
   * @param file path of the new file
   * @param meta the reserved record
   * @param puts number of records with a value
   * @param removes number of records that remove a key
   * @return length and CRC-32 of the file
   * @throws IllegalStateException if there are more or fewer records of a kind
   * @throws IOException if the file cannot be written or does not read back
   */
  def write(file: File, meta: Array[Byte], puts: Long, removes: Long): DeltaFile = {
    OffHeap.fileUse()
    val channel = FileChannel.open(file.toPath, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)
    try {
      try {
        val sst = new SstWriter(channel, count + 1L, memory, spillDirectory)
        try {
          addRecords(sst)
          if (sst.added != puts + removes || sst.removed != removes) {
            throw new IllegalStateException(s"A delta of $puts puts and $removes removals has ${sst.added} records, " +
              s"of which ${sst.removed} remove")
          }
          addMeta(sst, meta)
          readBack(file)
          DeltaFile(sst.bytes, sst.crc32, puts, removes)
        } finally sst.close()
      } finally channel.close()
    } catch {
      case e: Throwable =>
        file.delete()
        throw e
    }
  }

  /** Opens the written file as its readers will: an unreadable delta must not become a commit. */
  private def readBack(file: File): Unit = {
    val table = SstTable.read(file)
    try {
      val last = new SstCursor(table)
      try {
        last.seek(Reserved.metaKey)
        if (table.entries != count + 1L || !last.valid || !Arrays.equals(Reserved.metaKey, last.key)) {
          throw new IOException(s"$file was written, but does not read back as it was written")
        }
      } finally last.close()
    } finally table.close()
  }

  private def addRecords(sst: SstWriter): Unit = {
    val sorted = new MergedRecords(records.sourcesIn(Array.emptyByteArray, null, _ => true))
    var record = sorted.record
    while (record != 0) {
      sst.add(Record.keyAddress(record), Record.keyLength(record), Record.valueAddress(record),
        Record.valueLength(record))
      sorted.next()
      record = sorted.record
    }
  }

  /** Returns the records with from <= key < until that remove nothing, in key order. */
  def putsIn(from: Array[Byte], until: Array[Byte]): OrderedRecords =
    new MergedRecords(records.sourcesIn(from, until, !Record.isRemoved(_)))

  /** Returns the records in key order. The caller frees them and does not use this writer any more. */
  def giveRecords(): SortedRuns = records

  /** Frees the records. */
  def free(): Unit = records.free()

  private def addMeta(sst: SstWriter, meta: Array[Byte]): Unit = {
    val key = Reserved.metaKey
    val address = OffHeap.allocate(key.length + meta.length)
    try {
      Bytes.put(key, address)
      Bytes.put(meta, address + key.length)
      sst.add(address, key.length, address + key.length, meta.length)
      sst.finish(overwritten.write)
    } finally OffHeap.free(address)
  }
}

/**
 * Changes of a transaction that the last change of a key hides, in order of time: those that later changes of the
 * transaction replaced, and all from the first appended value on. The change feed shows them; no version needs them.
 * The first change takes memory. One thread at a time.
 */
private[incremental] final class OverwrittenChanges(memory: StoreMemory, spillDirectory: File) {
  private val arena = new Arena(memory, spillDirectory)
  private var hasAppended = false

  def bytes: Long = arena.bytes
  def spilledBytes: Long = arena.spilledBytes

  /** Keeps a copy of a record that will be replaced, or of a change of a key with appended values. */
  def add(record: Long): Unit = {
    val valueLength = Record.valueLength(record)
    val keyLength = Record.keyLength(record)
    val room = math.max(valueLength, 0)
    val copy = arena.allocate(Record.size(keyLength, room))
    Record.setHeader(copy, Record.hash(record), keyLength, valueLength, room)
    OffHeap.copyMemory(null, Record.keyAddress(record), null, Record.keyAddress(copy), keyLength.toLong + room)
  }

  /** Keeps a value that is appended to those of the record's key. */
  def addAppended(record: Long, value: Array[Byte]): Unit = {
    hasAppended = true
    val keyLength = Record.keyLength(record)
    val copy = arena.allocate(Record.size(keyLength, value.length))
    Record.setHeader(copy, Record.hash(record), keyLength, OverwrittenChanges.appended(value.length), value.length)
    OffHeap.copyMemory(null, Record.keyAddress(record), null, Record.keyAddress(copy), keyLength)
    Bytes.put(value, Record.valueAddress(copy))
  }

  /**
   * Writes the changes as blocks of their own, as docs/format.md describes.
   *
   * @return names and handles of the blocks; none if there is no change
   */
  def write(out: SstBlockWriter): Seq[(String, SstHandle)] = {
    val blocks = Seq.newBuilder[SstHandle]
    arena.foreach { record =>
      if (out.blockBytes >= OverwrittenChanges.blockBytes) blocks += out.endBlock()
      val keyLength = Record.keyLength(record)
      val valueLength = Record.valueLength(record)
      out.ensure(8)
      out.putInt(keyLength)
      out.putInt(valueLength)
      out.putBytes(null, Record.keyAddress(record), keyLength)
      out.putBytes(null, Record.valueAddress(record), OverwrittenChanges.bytesOf(valueLength))
    }
    if (out.blockBytes > 0) blocks += out.endBlock()
    val prefix = if (hasAppended) OverwrittenChanges.withAppended else OverwrittenChanges.withoutAppended
    blocks.result().zipWithIndex.map { case (handle, n) => OverwrittenChanges.blockName(prefix, n) -> handle }
  }

  def free(): Unit = arena.free()
}

private[incremental] object OverwrittenChanges {
  private val blockBytes = 256 << 10

  /** Prefixes of the blocks' names, without and with appended values. The first release cannot read appended values. */
  private val withoutAppended = "incremental.superseded."
  private val withAppended = "incremental.appended."

  /** Returns the name of the n-th block; RocksDB does not know the name and ignores the block. */
  private def blockName(prefix: String, n: Int): String = prefix + "%06d".formatLocal(Locale.ROOT, n)

  /**
   * Returns the number that stands for the length of an appended value. The function is its own inverse, and its
   * results are below [[Record.removed]].
   */
  private def appended(length: Int): Int = -2 - length

  private def bytesOf(valueLength: Int): Int =
    if (valueLength < Record.removed) appended(valueLength) else math.max(valueLength, 0)

  /**
   * Returns the changes that the last change of a key hides, in order of time.
   *
   * @param room memory for a block of the table
   */
  def in(table: SstTable, room: SstRoom): Iterator[Change] =
    (table.blocksNamed(withoutAppended) ++ table.blocksNamed(withAppended)).iterator
      .flatMap { block =>
        table.read(block, room)
        changes(table, room.start, room.bytes)
      }

  private def changes(table: SstTable, at: Long, bytes: Long): Iterator[Change] =
    new Iterator[Change] {
      private var nextAddress = at

      override def hasNext: Boolean = nextAddress < at + bytes

      override def next(): Change = {
        val left = at + bytes - nextAddress - 8
        if (left < 0) table.changed(at)
        val keyLength = OffHeap.getInt(null, nextAddress)
        val valueLength = OffHeap.getInt(null, nextAddress + 4)
        val valueBytes = bytesOf(valueLength)
        if (keyLength < 0 || keyLength.toLong + valueBytes > left) table.changed(at)
        val key = Bytes.array(nextAddress + 8, keyLength)
        val value = if (valueLength == Record.removed) null else Bytes.array(nextAddress + 8 + keyLength, valueBytes)
        nextAddress += 8L + keyLength + valueBytes
        Change(key, value, isAppended = valueLength < Record.removed)
      }
    }
}

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
