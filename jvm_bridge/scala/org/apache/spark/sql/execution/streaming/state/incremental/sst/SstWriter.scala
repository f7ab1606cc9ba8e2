package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.io.File
import java.nio.ByteBuffer
import java.nio.channels.FileChannel
import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.ThreadLocalRandom
import java.util.zip.{CRC32, CRC32C}

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{
  Bytes, KeyHash, OffHeap, Record, Slots, StoreMemory
}

// An SST is written entry by entry: the writer fills a data block, ends it with its trailer, and adds each key to the
// bloom filter; filter, index and properties follow at the end.

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

/**
 * The output of an SST writer: collects bytes outside the heap, ends blocks with their trailers, writes them to the
 * file and counts its CRC-32. The buffer has the same size for blocks of any length, and is smaller until a file turns
 * out to be large. One thread.
 */
private[incremental] final class SstBlockWriter(channel: FileChannel) {
  private var buffer = OffHeap.buffer(SstBlockWriter.leastRoomBytes)
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
    var left = value
    while ((left & ~0x7fL) != 0) {
      putByte((left | 0x80).toByte)
      left >>>= 7
    }
    putByte(left.toByte)
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

private[incremental] object SstBlockWriter {
  private val leastRoomBytes = 32 << 10
  private val roomBytes = 256 << 10
}

/**
 * The bloom filter of RocksDB's format_version 5. The low half of a key's hash chooses a cache line of 512 bits, the
 * high half chooses bits in the line. The last 5 bytes are -1, 0, number of probes, 0, 0.
 */
private[sst] final class SstFilter private (start: Long, lines: Int, probes: Int) {

  /** Returns false if no key of the file has that hash. */
  def mayContain(hash: Long): Boolean = lines == 0 || {
    val at = start + SstFilter.line(hash, lines).toLong * SstFilter.lineBytes
    var h = (hash >>> 32).toInt
    var i = 0
    while (i < probes) {
      val bit = h >>> 23
      if ((OffHeap.getByte(null, at + (bit >> 3)) & (1 << (bit & 7))) == 0) return false
      h *= SstFilter.next
      i += 1
    }
    true
  }
}

private[sst] object SstFilter {
  val lineShift = 6
  val lineBytes: Int = 1 << lineShift
  val trailerBytes = 5
  private val next = 0x9e3779b9

  private def line(hash: Long, lines: Int): Int = (((hash & 0xffffffffL) * lines) >>> 32).toInt

  /** Sets the bits of a hash in the cache lines of a filter. */
  def add(hash: Long, probes: Int, filter: Slots): Unit = {
    val at = filter.address(line(hash, filter.capacity.toInt))
    var h = (hash >>> 32).toInt
    var i = 0
    while (i < probes) {
      val bit = h >>> 23
      val byte = at + (bit >> 3)
      OffHeap.putByte(null, byte, (OffHeap.getByte(null, byte) | (1 << (bit & 7))).toByte)
      h *= next
      i += 1
    }
  }

  /** A filter that excludes no key. */
  val none = new SstFilter(0, 0, 0)

  /**
   * Returns the filter in a block, or [[none]] if the block has a filter of another kind.
   *
   * @param start address of the block
   */
  def in(start: Long, bytes: Int): SstFilter = {
    val end = start + bytes
    val lines = (bytes - trailerBytes) / lineBytes
    if (lines > 0 && OffHeap.getByte(null, end - 5) == -1 && OffHeap.getByte(null, end - 4) == 0) {
      val probes = OffHeap.getByte(null, end - 3)
      if (probes <= mostProbes) new SstFilter(start, lines, probes) else none
    } else none
  }

  /** RocksDB's filters ask no more; a larger number says that lines are longer, a negative one makes no probe. */
  private val mostProbes = 30
}

/**
 * Builds a bloom filter outside the heap, of 10 bits a key, or of fewer if a block could not hold as many. The caller
 * frees it. One thread.
 *
 * @param keys number of keys that will be added
 */
private[sst] final class SstFilterBuilder(keys: Long, memory: StoreMemory, spillDirectory: File) {
  import SstFilterBuilder._

  private val filter =
    Slots.zeros(math.min(maxLines, (keys * 10000 + 511999) / 512000), SstFilter.lineShift, memory, spillDirectory)

  /** Hashes that are added at once, so that the processor waits for their cache lines at the same time. */
  private val hashes = new Array[Long](atOnce)
  private var waiting = 0

  def add(hash: Long): Unit = {
    if (waiting == atOnce) addWaiting()
    hashes(waiting) = hash
    waiting += 1
  }

  private def addWaiting(): Unit = {
    var i = 0
    while (i < waiting) {
      SstFilter.add(hashes(i), probes, filter)
      i += 1
    }
    waiting = 0
  }

  /** Puts the filter, without a trailer, into a file. Called once, after all keys. */
  def finish(out: SstBlockWriter): Unit = {
    addWaiting()
    for (i <- 0 until filter.pieceCount) out.putBytes(null, filter.pieceStart(i),
      filter.pieceEnd(i) - filter.pieceStart(i))
    // RocksDB's trailer: a newer kind of filter (-1), its number (0), probes for a key, two reserved bytes.
    out.putArray(Array[Byte](-1, 0, probes, 0, 0))
  }

  def free(): Unit = filter.free()
}

private object SstFilterBuilder {
  private val probes: Byte = 6
  private val atOnce = 256
  private val maxLines = (Int.MaxValue - 64L) / SstFilter.lineBytes
}
