package org.apache.spark.sql.execution.streaming.state.incremental.delta

import java.io.{File, IOException}
import java.nio.channels.FileChannel
import java.nio.file.{Files, StandardOpenOption}
import java.util.Arrays

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{DeltaFile, Reserved}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{
  Bytes, MergedRecords, OffHeap, OrderedRecords, Record, SortedRuns, StoreMemory
}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.{SstCursor, SstTable, SstWriter}

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
