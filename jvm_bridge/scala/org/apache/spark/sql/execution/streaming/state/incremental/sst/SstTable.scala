package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.io.{File, IOException}
import java.nio.MappedByteBuffer
import java.nio.channels.FileChannel
import java.nio.file.StandardOpenOption
import java.util.concurrent.atomic.AtomicInteger

import org.apache.spark.sql.execution.streaming.state.incremental.memory.Bytes
import org.apache.spark.storage.StorageUtils
import org.apache.spark.unsafe.Platform

/** An SST that only RocksDB itself can read. */
private[incremental] final class UnsupportedSstException(message: String) extends IOException(message)

/**
 * An SST, memory-mapped, read without RocksDB: block-based table of format_version 2 to 5 with one bytewise
 * sorted index and, if there is a filter, a full bloom filter of format_version 5. Any number of threads may
 * read it. Shared by counted references; the mapping ends with the last, and then nobody may read it.
 *
 * @throws IOException when it is not such a file; its message names the file
 */
private[incremental] final class SstTable(val file: File) {
  private val references = new AtomicInteger(1)
  private val mapped: MappedByteBuffer = SstTable.map(file)
  private val address = Platform.getDirectBufferAddress(mapped)
  private val bytes = mapped.capacity

  private var footerAt = address + bytes - SstFormat.footerBytes + 1
  private var properties = Map.empty[String, Long]
  private var otherBlocks = Vector.empty[(String, SstHandle)]

  /** Where the index block's restarts are, and how many: one for each data block. */
  private var index = 0L
  private var restarts = 0L
  private var blockCount = 0
  private var filter = 0L
  private var filterLines = 0
  private var filterProbes = 0
  private var keyFooter = 0
  private var plain = false
  private val expansion = new Lz4Block
  private var valueLengths = false

  try parse()
  catch {
    case e: Throwable =>
      release()
      throw e
  }

  private def parse(): Unit = {
    if (bytes < SstFormat.footerBytes || Platform.getLong(null, address + bytes - 8) != SstFormat.magic) {
      fail("it does not end as an SST does")
    }
    val version = Platform.getInt(null, address + bytes - 12)
    require(version >= 2 && version <= 5, s"its format_version is $version")
    val meta = readHandle()
    val indexHandle = readHandle()
    readMeta(meta)
    require(number("rocksdb.block.based.table.index.type") == 0, "its index is partitioned or hashed")
    require(number("rocksdb.num.range-deletions") == 0, "it has range deletions")
    readIndex(indexHandle)
  }

  private def require(condition: Boolean, otherwise: => String): Unit =
    if (!condition) throw new UnsupportedSstException(s"$file: $otherwise")

  private def fail(reason: String): Nothing = throw new IOException(s"$file is damaged or no SST file: $reason")

  private def number(name: String): Long = properties.getOrElse(name, 0L)

  private def readHandle(): SstHandle = {
    val entry = new VarintReader(footerAt)
    val handle = SstHandle(entry.varint(), entry.varint())
    footerAt = entry.at
    checked(handle)
  }

  private def checked(handle: SstHandle): SstHandle = {
    if (handle.offset < 0 || handle.bytes < 4 || handle.offset + handle.bytes + SstFormat.trailerBytes > bytes) {
      fail("a block lies outside the file")
    }
    handle
  }

  private def readMeta(handle: SstHandle): Unit =
    foreachPlainEntry(handle) { (name, at, length) =>
      val value = new VarintReader(at)
      if (name == SstFormat.propertiesName) readProperties(checked(SstHandle(value.varint(), value.varint())))
      else if (name == SstFormat.filterName) readFilter(checked(SstHandle(value.varint(), value.varint())))
      else otherBlocks :+= name -> SstHandle(value.varint(), value.varint())
    }

  /** The blocks that RocksDB leaves alone whose names begin so, in the order of their names. */
  def blocksNamed(prefix: String): Seq[SstHandle] =
    otherBlocks.collect { case (name, handle) if name.startsWith(prefix) => checked(handle) }

  private def readFilter(handle: SstHandle): Unit = {
    val end = address + handle.offset + handle.bytes
    val lines = (handle.bytes - SstFilter.trailerBytes) / SstFilter.lineBytes
    if (isUncompressed(handle) && lines > 0 && Platform.getByte(null, end - 5) == -1 && Platform.getByte(null, end - 4) == 0) {
      filter = address + handle.offset
      filterLines = lines.toInt
      filterProbes = Platform.getByte(null, end - 3) & 31
    }
  }

  private def readProperties(handle: SstHandle): Unit =
    foreachPlainEntry(handle) { (name, at, length) =>
      if (name == "rocksdb.comparator") {
        val comparator = new String(Bytes.array(at, length), "UTF-8")
        require(comparator == SstFormat.comparatorName, s"its comparator is $comparator")
      } else if (name == "rocksdb.block.based.table.index.type") properties += name -> Platform.getInt(null, at).toLong
      else if (SstTable.numbers(name)) properties += name -> new VarintReader(at).varint()
    }

  private def isUncompressed(handle: SstHandle): Boolean =
    Platform.getByte(null, address + handle.offset + handle.bytes) == SstFormat.uncompressed

  private def foreachPlainEntry(handle: SstHandle)(use: (String, Long, Int) => Unit): Unit = {
    require(isUncompressed(handle), "its metadata is compressed")
    val start = address + handle.offset
    val end = start + handle.bytes - 4 - 4L * Platform.getInt(null, start + handle.bytes - 4)
    if (end < start) fail("its metadata cannot be read")
    val entry = new VarintReader(start)
    var name = ""
    while (entry.at < end) {
      val shared = entry.varint().toInt
      val rest = entry.varint().toInt
      val length = entry.varint().toInt
      name = name.substring(0, shared) + new String(Bytes.array(entry.at, rest), "UTF-8")
      use(name, entry.at + rest, length)
      entry.at += rest + length
    }
  }

  private def readIndex(handle: SstHandle): Unit = {
    index = address + handle.offset
    var length = handle.bytes
    if (!isUncompressed(handle)) {
      require(Platform.getByte(null, index + length) == SstFormat.lz4, "it is compressed, and not with LZ4")
      length = expansion.expand(index, handle.bytes.toInt)
      index = expansion.at
    }
    blockCount = Platform.getInt(null, index + length - 4)
    restarts = index + length - 4 - 4L * blockCount
    require(blockCount == number("rocksdb.num.data.blocks"), "its index has restart intervals other than 1")
    if (restarts < index) fail("its index cannot be read")
    keyFooter = if (number("rocksdb.index.key.is.user.key") == 1) 0 else SstFormat.keyFooterBytes
    valueLengths = number("rocksdb.index.value.is.delta.encoded") == 0
    plain = blockCount == 0 || isUncompressed(block(0))
  }

  /** Whether its data blocks are uncompressed. */
  def uncompressed: Boolean = plain

  def blocks: Int = blockCount

  /** Whether a key with that hash may be in it. */
  def mayContain(hash: Long): Boolean = filter == 0 || SstFilter.mayContain(hash, filterProbes, filter, filterLines)

  private def indexEntry(i: Int): Long = index + (Platform.getInt(null, restarts + 4L * i) & 0xffffffffL) + 1

  /** Where a data block is. */
  def block(i: Int): SstHandle = {
    val entry = new VarintReader(indexEntry(i))
    val length = entry.varint()
    if (valueLengths) entry.varint()
    entry.at += length
    checked(SstHandle(entry.varint(), entry.varint()))
  }

  def blockAddress(handle: SstHandle): Long = address + handle.offset

  /** The first block that can have the key or a greater one; [[blocks]] when none has. */
  def blockOf(key: AnyRef, keyAt: Long, keyLength: Int): Int = {
    var low = 0
    var high = blockCount
    while (low < high) {
      val middle = (low + high) >>> 1
      if (compareIndexed(middle, key, keyAt, keyLength) < 0) low = middle + 1 else high = middle
    }
    low
  }

  private def compareIndexed(i: Int, key: AnyRef, keyAt: Long, keyLength: Int): Int = {
    var at = indexEntry(i)
    var byte = Platform.getByte(null, at)
    var length = byte & 0x7f
    var shift = 7
    while (byte < 0) {
      at += 1
      byte = Platform.getByte(null, at)
      length |= (byte & 0x7f) << shift
      shift += 7
    }
    at += 1
    if (valueLengths) {
      while (Platform.getByte(null, at) < 0) at += 1
      at += 1
    }
    Bytes.compare(null, at, length - keyFooter, key, keyAt, keyLength)
  }

  def retain(): Unit = references.incrementAndGet()

  def release(): Unit = if (references.decrementAndGet() == 0) {
    expansion.free()
    StorageUtils.dispose(mapped)
  }
}

private[incremental] object SstTable {
  private val numbers = Set(
    "rocksdb.num.range-deletions",
    "rocksdb.num.data.blocks",
    "rocksdb.index.key.is.user.key",
    "rocksdb.index.value.is.delta.encoded")

  private def map(file: File): MappedByteBuffer = {
    val channel = FileChannel.open(file.toPath, StandardOpenOption.READ)
    try {
      if (channel.size > Int.MaxValue) throw new UnsupportedSstException(s"$file: it has more than 2 GiB")
      channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size)
    } finally channel.close()
  }
}
