package org.apache.spark.sql.execution.streaming.state.incremental.delta

import java.io.{File, IOException}
import java.nio.channels.FileChannel
import java.nio.file.{Files, StandardOpenOption}
import java.util.Arrays

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{DeltaFile, Reserved}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, MergedRecords, OffHeap, OrderedRecords, Record, SortedRuns, StoreMemory}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.{SstCursor, SstTable, SstWriter}

/**
 * Writes changed records as a delta SST, in key order, and after them the reserved record; and opens the file once, as
 * a reader does. An exception leaves no file.
 *
 * @param records     the records; given back with [[free]]
 * @param count       how many they are
 * @param overwritten changes that they replaced
 * @param memory      has what is needed meanwhile, or files of the directory have
 */
private[incremental] final class DeltaWriter(
    records: SortedRuns,
    count: Int,
    overwritten: OverwrittenChanges,
    memory: StoreMemory,
    spillDirectory: File) {
  /** Throws when there are not as many records, or not as many that remove, as the caller has counted. */
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
        Files.deleteIfExists(file.toPath)
        throw e
    }
  }

  /** Opens what was written as its readers will: a delta that cannot be read must not become a commit. */
  private def readBack(file: File): Unit = {
    val table = SstTable.read(file)
    try {
      val last = new SstCursor(table)
      try {
        last.seek(Reserved.metaKey)
        if (table.entries != count + 1L || !last.valid || !Arrays.equals(Reserved.metaKey, last.key)) {
          throw new IOException(s"$file was written, but reads as something else")
        }
      } finally last.close()
    } finally table.close()
  }

  private def addRecords(sst: SstWriter): Unit = {
    val sorted = new MergedRecords(records.sourcesIn(Array.emptyByteArray, null, _ => true))
    var record = sorted.record
    while (record != 0) {
      sst.add(Record.keyAddress(record), Record.keyLength(record), Record.valueAddress(record), Record.valueLength(record))
      sorted.next()
      record = sorted.record
    }
  }

  /** The records with from <= key < until that remove nothing, in key order. */
  def putsIn(from: Array[Byte], until: Array[Byte]): OrderedRecords =
    new MergedRecords(records.sourcesIn(from, until, !Record.isRemoved(_)))

  /** The records in key order, for the caller to free; this one is not used any more. */
  def giveRecords(): SortedRuns = records

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
