package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.io.{File, IOException}
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.channels.FileChannel
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.StandardOpenOption
import java.util.{Arrays, Locale}
import java.util.concurrent.ThreadLocalRandom
import java.util.zip.{CRC32, CRC32C}

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{DeltaFile, DeltaMetadata, Reserved}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{
  Arena, Bytes, KeyHash, MergedRecords, OffHeap, OrderedRecords, Record, SortedRuns, StoreMemory
}

// The delta of a batch as a file: its records are written in key order as an SST, block by block, then the changes that
// later ones of the batch hide, then what leads to the blocks. The change feed reads it back.

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
 * Writes an SST as RocksDB's SstFileWriter does (block-based table, format_version 5, uncompressed, CRC-32C, full bloom
 * filter of 10 bits a key, sequence numbers 0), from keys and values outside the heap, without a native call for each
 * of them. Keys come in ascending order, which is checked. The writer's memory lies outside the heap, in the budget or
 * in spill files, until [[close]]. One thread.
 *
 * @param channel the file; the caller closes it
 * @param keys number of keys that will be added
 */
private[sst] final class SstWriter(channel: FileChannel, keys: Long, memory: StoreMemory, spillDirectory: File)
    extends AutoCloseable {
  import SstWriter._

  private val out = new SstBlockWriter(channel)
  private val index = new SstIndexBuilder(memory, spillDirectory)
  private val filter = new SstFilterBuilder(keys, memory, spillDirectory)
  private var restarts = new Array[Int](64)
  private var restartCount = 0
  private var sinceRestart = restartInterval
  private var lastKey = 0L
  private var lastKeyLength = -1
  private var blockPending: SstHandle = _
  private var entries = 0L
  private var removals = 0L
  private var keyBytes = 0L
  private var valueBytes = 0L

  /**
   * Adds a key with its value, or its removal if the length of the value is [[Record.removed]]. The key stays at its
   * address until the next call.
   *
   * @throws IllegalStateException if the key is not greater than the one before
   */
  def add(key: Long, keyLength: Int, value: Long, valueLength: Int): Unit = {
    if (blockPending != null) {
      index.add(lastKey, lastKeyLength, key, keyLength, blockPending)
      blockPending = null
    }
    val valueRoom = math.max(valueLength, 0)
    val common = if (lastKeyLength < 0) 0 else Bytes.common(lastKey, lastKeyLength, key, keyLength)
    checkOrder(common, key, keyLength)
    out.ensure(16)
    if (sinceRestart >= restartInterval) beginRestart()
    val shared = if (sinceRestart == 0) 0 else common
    sinceRestart += 1
    out.putVarint(shared)
    out.putVarint(keyLength - shared + SstFormat.keyFooterBytes)
    out.putVarint(valueRoom)
    out.putBytes(null, key + shared, keyLength - shared)
    out.ensure(8)
    out.putLong(if (valueLength == Record.removed) SstFormat.removal else SstFormat.put)
    out.putBytes(null, value, valueRoom)
    filter.add(KeyHash.of(null, key, keyLength))
    lastKey = key
    lastKeyLength = keyLength
    entries += 1
    if (valueLength == Record.removed) removals += 1
    keyBytes += keyLength + SstFormat.keyFooterBytes
    valueBytes += valueRoom
    if (out.blockBytes + 4 * restartCount >= blockBytes) endBlock()
  }

  /** Throws if a key is not greater than the one before: readers of a file in another order would miss keys. */
  private def checkOrder(common: Int, key: Long, keyLength: Int): Unit = {
    val ascends = lastKeyLength < 0 || common < keyLength && (common == lastKeyLength ||
      (OffHeap.getByte(null, lastKey + common) & 0xff) < (OffHeap.getByte(null, key + common) & 0xff))
    if (!ascends) throw new IllegalStateException(s"Key ${entries + 1} of an SST is not greater than the one before")
  }

  private def beginRestart(): Unit = {
    if (restartCount == restarts.length) restarts = Arrays.copyOf(restarts, restartCount * 2)
    restarts(restartCount) = out.blockBytes
    restartCount += 1
    sinceRestart = 0
  }

  private def endBlock(): Unit = {
    var i = 0
    while (i < restartCount) {
      out.ensure(4)
      out.putInt(restarts(i))
      i += 1
    }
    out.ensure(4)
    out.putInt(restartCount)
    restartCount = 0
    sinceRestart = restartInterval
    blockPending = out.endBlock()
  }

  /**
   * Writes the metadata, after all keys, of which there is at least one.
   *
   * @param putExtra puts blocks that RocksDB ignores, and returns their names and handles, in order; the names sort
   *     between those of the filter and of the properties
   * @throws IllegalStateException if there were more or fewer keys than announced
   */
  def finish(putExtra: SstBlockWriter => Seq[(String, SstHandle)]): Unit = {
    if (entries != keys) throw new IllegalStateException(s"An SST was to have $keys keys and got $entries")
    if (restartCount > 0) endBlock()
    index.addLast(lastKey, lastKeyLength, blockPending)
    val dataBytes = out.bytes
    val extra = putExtra(out)
    val tailOffset = out.bytes
    filter.finish(out)
    val filterHandle = out.endBlock()
    index.finish(out)
    val indexHandle = out.endBlock()
    val properties = putBlock(plainBlock(propertyList(dataBytes, tailOffset, filterHandle.bytes, indexHandle.bytes)))
    val meta = putBlock(plainBlock(
      (SstFormat.filterName -> handleBytes(filterHandle)) +:
        extra.map { case (name, handle) =>
          name -> handleBytes(handle)
        } :+
        (SstFormat.propertiesName -> handleBytes(properties))))
    putFooter(meta, indexHandle)
    out.finish()
  }

  /** Frees the writer's memory; the channel stays open. */
  def close(): Unit = {
    index.free()
    filter.free()
    out.free()
  }

  /** Numbers of keys that were added so far, and of removals among them. */
  def added: Long = entries
  def removed: Long = removals

  def bytes: Long = out.bytes
  def crc32: Long = out.crc32

  private def putBlock(content: Array[Byte]): SstHandle = {
    out.putArray(content)
    out.endBlock()
  }

  private def putFooter(meta: SstHandle, indexHandle: SstHandle): Unit = {
    val footer = ByteBuffer.allocate(SstFormat.footerBytes).order(ByteOrder.LITTLE_ENDIAN)
    footer.put(SstFormat.crc32c).put(handleBytes(meta)).put(handleBytes(indexHandle))
    footer.putInt(41, SstFormat.version).putLong(45, SstFormat.magic)
    out.putArray(footer.array)
  }

  private def propertyList(
      dataBytes: Long, tailOffset: Long, filterBytes: Long, indexBytes: Long): Seq[(String, Array[Byte])] = Seq(
    "rocksdb.block.based.table.index.type" -> fixed(0, 4),
    "rocksdb.block.based.table.prefix.filtering" -> text("0"),
    "rocksdb.block.based.table.whole.key.filtering" -> text("1"),
    "rocksdb.column.family.id" -> varint(Int.MaxValue),
    "rocksdb.comparator" -> text(SstFormat.comparatorName),
    "rocksdb.compression" -> text("NoCompression"),
    "rocksdb.creating.db.identity" -> text("SST Writer"),
    "rocksdb.creating.session.identity" -> text(session()),
    "rocksdb.data.size" -> varint(dataBytes),
    "rocksdb.deleted.keys" -> varint(removals),
    "rocksdb.external_sst_file.global_seqno" -> fixed(0, 8),
    "rocksdb.external_sst_file.version" -> fixed(2, 4),
    "rocksdb.filter.policy" -> text("bloomfilter"),
    "rocksdb.filter.size" -> varint(filterBytes),
    "rocksdb.fixed.key.length" -> varint(0),
    "rocksdb.format.version" -> varint(SstFormat.version),
    "rocksdb.index.key.is.user.key" -> varint(1),
    "rocksdb.index.size" -> varint(indexBytes),
    "rocksdb.index.value.is.delta.encoded" -> varint(1),
    "rocksdb.merge.operands" -> varint(0),
    "rocksdb.num.data.blocks" -> varint(index.entries),
    "rocksdb.num.entries" -> varint(entries),
    "rocksdb.num.filter_entries" -> varint(entries),
    "rocksdb.num.range-deletions" -> varint(0),
    "rocksdb.original.file.number" -> varint(1),
    "rocksdb.raw.key.size" -> varint(keyBytes),
    "rocksdb.raw.value.size" -> varint(valueBytes),
    "rocksdb.tail.start.offset" -> varint(tailOffset))
}

private[sst] object SstWriter {
  private val restartInterval = 16
  private val blockBytes = 4096

  private def text(value: String): Array[Byte] = value.getBytes(UTF_8)

  private def fixed(value: Long, bytes: Int): Array[Byte] = Array.tabulate(bytes)(i => (value >>> (8 * i)).toByte)

  def varint(value: Long): Array[Byte] = {
    val bytes = Array.newBuilder[Byte]
    var rest = value
    while ((rest & ~0x7fL) != 0) {
      bytes += (rest | 0x80).toByte
      rest >>>= 7
    }
    bytes += rest.toByte
    bytes.result()
  }

  def handleBytes(handle: SstHandle): Array[Byte] = varint(handle.offset) ++ varint(handle.bytes)

  /**
   * Returns twenty digits to base 36, as RocksDB names the process that wrote a file. Each file has its own: RocksDB's
   * block cache uses it to tell ingested files apart.
   */
  private def session(): String =
    Seq.fill(20)(Character.forDigit(ThreadLocalRandom.current.nextInt(36), 36).toUpper).mkString

  /** Returns a block of sorted entries with whole keys and one restart. */
  private def plainBlock(entries: Seq[(String, Array[Byte])]): Array[Byte] = {
    val block = Array.newBuilder[Byte]
    entries.foreach { case (name, value) =>
      val key = text(name)
      block ++= varint(0) ++= varint(key.length) ++= varint(value.length) ++= key ++= value
    }
    (block ++= fixed(0, 4) ++= fixed(1, 4)).result()
  }
}

/**
 * The output of an SST writer: collects bytes outside the heap, ends blocks with their trailers, writes them to the
 * file and counts its CRC-32. The buffer has the same size for blocks of any length, and is smaller until a file turns
 * out to be large. One thread.
 */
private[sst] final class SstBlockWriter(channel: FileChannel) {
  private var buffer = OffHeap.buffer(SstBlockWriter.minRoomBytes)
  private var address = OffHeap.addressOf(buffer)
  private var at = 0
  private var written = 0L

  /** Offset in the file of the block that is being built. */
  private var block = 0L

  /** Index in the buffer of the first byte that the block's checksum does not count yet. */
  private var unchecked = 0
  private val fileCrc = new CRC32
  private val checksum = new CRC32C

  /** Bytes of the block that is being built, so far. */
  def blockBytes: Int = Math.toIntExact(bytes - block)

  /** Bytes put so far. */
  def bytes: Long = written + at

  /** The CRC-32 of all that was flushed; of the whole file after [[finish]]. */
  def crc32: Long = fileCrc.getValue

  /** Makes room for a put of this many bytes, at most the size of the buffer. */
  def ensure(more: Int): Unit = if (buffer.capacity - at < more) flushToGoOn()

  private def flushToGoOn(): Unit = {
    flush()
    if (buffer.capacity < SstBlockWriter.roomBytes) {
      free()
      buffer = OffHeap.buffer(SstBlockWriter.roomBytes)
      address = OffHeap.addressOf(buffer)
    }
  }

  private def flush(): Unit = {
    check()
    buffer.position(0).limit(at)
    fileCrc.update(buffer)
    buffer.position(0)
    OffHeap.fileUse()
    while (buffer.hasRemaining) channel.write(buffer)
    written += at
    at = 0
    unchecked = 0
  }

  private def check(): Unit = {
    buffer.limit(at).position(unchecked)
    checksum.update(buffer)
    unchecked = at
  }

  /** Puts a byte. This and the other fixed-size puts need [[ensure]] before them. */
  def putByte(value: Byte): Unit = {
    OffHeap.putByte(null, address + at, value)
    at += 1
  }

  def putInt(value: Int): Unit = {
    OffHeap.putInt(null, address + at, value)
    at += 4
  }

  def putLong(value: Long): Unit = {
    OffHeap.putLong(null, address + at, value)
    at += 8
  }

  def putVarint(value: Long): Unit = {
    var rest = value
    while ((rest & ~0x7fL) != 0) {
      putByte((rest | 0x80).toByte)
      rest >>>= 7
    }
    putByte(rest.toByte)
  }

  /** Puts any number of bytes from a place as [[OffHeap]] takes it; needs no [[ensure]]. */
  def putBytes(from: AnyRef, offset: Long, length: Long): Unit = {
    var done = 0L
    while (done < length) {
      if (at == buffer.capacity) flushToGoOn()
      val part = math.min(length - done, buffer.capacity - at)
      OffHeap.copyMemory(from, offset + done, null, address + at, part)
      at += part.toInt
      done += part
    }
  }

  def putArray(bytes: Array[Byte]): Unit = putBytes(bytes, OffHeap.arrayBase, bytes.length)

  /**
   * Ends the block with its trailer.
   *
   * @return the place of the block in the file
   */
  def endBlock(): SstHandle = {
    ensure(SstFormat.trailerBytes)
    val handle = SstHandle(block, blockBytes)
    putByte(SstFormat.uncompressed)
    check()
    putInt(SstFormat.masked(checksum.getValue.toInt))
    checksum.reset()
    unchecked = at
    block = bytes
    handle
  }

  /** Writes the bytes that are left. Those after the last block, the footer, belong to no block. */
  def finish(): Unit = flush()

  /** Frees the buffer. Called once. */
  def free(): Unit = OffHeap.dispose(buffer)
}

private object SstBlockWriter {
  private val minRoomBytes = 32 << 10
  private val roomBytes = 256 << 10
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
        val restBytes = at + bytes - nextAddress - 8
        if (restBytes < 0) table.changed(at)
        val keyLength = OffHeap.getInt(null, nextAddress)
        val valueLength = OffHeap.getInt(null, nextAddress + 4)
        val valueBytes = bytesOf(valueLength)
        if (keyLength < 0 || keyLength.toLong + valueBytes > restBytes) table.changed(at)
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
 * @throws java.io.IOException if the file cannot be read, is damaged, or is not an SST, also from [[advance]]; an
 *     UnknownFormatException if its format is not known
 */
final class DeltaReader(file: File) extends AutoCloseable {
  private val table = SstTable.read(file)
  private val cursor = new SstCursor(table)
  private val room = new SstRoom
  private val appendedKeys = new java.util.HashSet[ByteBuffer]
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
      if (current.isAppended) appendedKeys.add(ByteBuffer.wrap(current.key))
      true
    } else {
      while (advanceCursor()) {
        val key = Bytes.array(cursor.keyAddress, cursor.keyLength)
        if (appendedKeys.isEmpty || !appendedKeys.contains(ByteBuffer.wrap(key))) {
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
    val isReserved = cursor.valid && Bytes.compare(Reserved.from, cursor.keyAddress, cursor.keyLength) > 0
    if (isReserved) read += 1
    isReserved
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
    appendedKeys.clear()
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
