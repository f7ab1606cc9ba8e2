package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.io.File
import java.nio.ByteBuffer
import java.nio.channels.FileChannel
import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.ThreadLocalRandom

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, KeyHash, OffHeap, Record, StoreMemory}

/**
 * Writes an SST as RocksDB's SstFileWriter does (block-based table, format_version 5, uncompressed, CRC-32C, full bloom
 * filter of 10 bits a key, sequence numbers 0), from keys and values outside the heap, without a native call for each
 * of them. Keys come in ascending order, which is checked. The writer's memory lies outside the heap, in the budget or
 * in spill files, until [[close]]. One thread.
 *
 * @param channel the file; the caller closes it
 * @param keys number of keys that will be added
 */
private[incremental] final class SstWriter(channel: FileChannel, keys: Long, memory: StoreMemory, spillDirectory: File)
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
    if (restartCount == restarts.length) restarts = java.util.Arrays.copyOf(restarts, restartCount * 2)
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
    val footer = ByteBuffer.allocate(SstFormat.footerBytes).order(java.nio.ByteOrder.LITTLE_ENDIAN)
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

private[incremental] object SstWriter {
  private val restartInterval = 16
  private val blockBytes = 4096

  private def text(value: String): Array[Byte] = value.getBytes(UTF_8)

  private def fixed(value: Long, bytes: Int): Array[Byte] = Array.tabulate(bytes)(i => (value >>> (8 * i)).toByte)

  def varint(value: Long): Array[Byte] = {
    val bytes = Array.newBuilder[Byte]
    var left = value
    while ((left & ~0x7fL) != 0) {
      bytes += (left | 0x80).toByte
      left >>>= 7
    }
    bytes += left.toByte
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
