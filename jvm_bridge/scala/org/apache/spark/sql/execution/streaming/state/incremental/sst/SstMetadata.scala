package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.nio.charset.StandardCharsets.UTF_8

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, OffHeap}

/**
 * The metadata of an SST: its footer, properties, filter, and the place of its index. Each of its blocks is verified
 * when it is read. The blocks lie in the mapping of the file, or in copies that stay until [[close]].
 */
private[sst] final class SstMetadata(source: SstFile) extends AutoCloseable {
  private var mapped = 0L
  private var isSparse = false
  private var isVerified = false
  private var copies = List.empty[SstRoom]
  private var properties = Map.empty[String, Long]
  private var otherBlocks = Vector.empty[(String, SstHandle)]

  /** Results of [[read]]: the verified blocks, the filter, and place and address of the index. */
  var blocks: SstBlocks = _
  var filter: SstFilter = SstFilter.none
  var indexHandle: SstHandle = _
  var index = 0L

  /**
   * Reads the metadata. Called once.
   *
   * @param mapped address of the file's mapping; 0 if there is none: then the filter is not read
   * @param isSparse true if parts of the file may be missing
   * @param isVerified true if this process has verified the metadata of this file before
   * @throws UnsupportedSstException if only RocksDB can read the file
   * @throws DamagedSstException if the file is no SST or its metadata is damaged
   */
  def read(mapped: Long, isSparse: Boolean, isVerified: Boolean): Unit = {
    this.mapped = mapped
    this.isSparse = isSparse
    this.isVerified = isVerified
    if (source.bytes < SstFormat.footerBytes) source.damaged(0, "the file is too short for an SST")
    val footerAt = source.bytes - SstFormat.footerBytes
    val footer = copyOf(source.read(footerAt, SstFormat.footerBytes))
    if (OffHeap.getLong(null, footer + SstFormat.footerBytes - 8) != SstFormat.magic) {
      source.damaged(footerAt, "the file does not end as an SST does")
    }
    val version = OffHeap.getInt(null, footer + SstFormat.footerBytes - 12)
    source.require(version >= 2 && version <= 5, s"its format_version is $version")
    val kind = OffHeap.getByte(null, footer)
    source.require(SstChecksum.is(kind), s"its checksums are of kind $kind")
    blocks = new SstBlocks(source)
    val handles = new VarintReader(footer + 1)
    val meta = source.handle(handles)
    indexHandle = source.handle(handles)
    readMeta(meta)
    source.require(number("rocksdb.block.based.table.index.type") == 0, "its index is partitioned or hashed")
    source.require(number("rocksdb.num.range-deletions") == 0, "it has range deletions")
    index = content(indexHandle)
  }

  /** Returns the value of a property, 0 if the table does not have it. */
  def number(name: String): Long = properties.getOrElse(name, 0L)

  /** Returns the blocks that RocksDB ignores and whose names begin with a prefix, in the order of their names. */
  def blocksNamed(prefix: String): Seq[SstHandle] =
    otherBlocks.collect { case (name, handle) if name.startsWith(prefix) => handle }

  /** Returns the address of a block's content, verified. */
  private def content(handle: SstHandle): Long = {
    val block = if (isVerified) null else blocks.read(handle)
    if (mapped != 0) mapped + handle.offset else copyOf(block)
  }

  private def copyOf(block: Array[Byte]): Long = {
    val copy = new SstRoom
    copies ::= copy
    copy.put(block)
  }

  private def readMeta(handle: SstHandle): Unit =
    foreachPlainEntry(handle) { (name, at, _) =>
      val block = source.handle(new VarintReader(at))
      if (name == SstFormat.propertiesName) readProperties(block)
      else if (name == SstFormat.filterName) { if (mapped != 0) filter = SstFilter.in(content(block), block.bytes) }
      else otherBlocks :+= name -> block
    }

  private def readProperties(handle: SstHandle): Unit =
    foreachPlainEntry(handle) { (name, at, length) =>
      if (name == "rocksdb.comparator") {
        val comparator = new String(Bytes.array(at, length), UTF_8)
        source.require(comparator == SstFormat.comparatorName, s"its comparator is $comparator")
      } else if (isSparse && name == "rocksdb.compression") {
        val compression = new String(Bytes.array(at, length), UTF_8)
        source.require(compression == "NoCompression",
          s"it is compressed ($compression)") // its first block may not be there
      } else if (name == "rocksdb.block.based.table.index.type") properties += name -> OffHeap.getInt(null, at).toLong
      else if (SstMetadata.numbers(name)) properties += name -> new VarintReader(at).varint()
    }

  private def foreachPlainEntry(handle: SstHandle)(use: (String, Long, Int) => Unit): Unit = {
    def damaged(): Nothing = source.damaged(handle.offset, "its metadata cannot be read")
    val start = content(handle)
    val restarts = OffHeap.getInt(null, start + handle.bytes - 4)
    val end = start + handle.bytes - 4 - 4L * restarts
    if (restarts < 0 || end < start) damaged()
    val entry = new VarintReader(start)
    var name = Array.emptyByteArray
    while (entry.at < end) {
      val shared = entry.length()
      val rest = entry.length()
      val length = entry.length()
      if (shared < 0 || shared > name.length || rest < 0 || length < 0 || entry.at + rest + length > end) damaged()
      name = name.take(shared) ++ Bytes.array(entry.at, rest)
      use(new String(name, UTF_8), entry.at + rest, length)
      entry.at += rest.toLong + length
    }
  }

  /** Frees the copies. No thread may read the index or the filter meanwhile or afterwards. May be called repeatedly. */
  def close(): Unit = {
    copies.foreach(_.free())
    copies = Nil
  }
}

private object SstMetadata {
  private val numbers = Set(
    "rocksdb.num.range-deletions",
    "rocksdb.num.data.blocks",
    "rocksdb.num.entries",
    "rocksdb.index.key.is.user.key",
    "rocksdb.index.value.is.delta.encoded")
}
