package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.io.{File, IOException}
import java.nio.MappedByteBuffer
import java.nio.charset.StandardCharsets.UTF_8

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, OffHeap}
import org.apache.spark.storage.StorageUtils

/**
 * An SST, read without RocksDB: block-based table of format_version 2 to 5, not compressed, with one bytewise sorted
 * index and, if there is a filter, a full bloom filter of format_version 5. Each block's checksum is verified before
 * the block is read for the first time; index, filter and properties when the table is opened. Any number of threads
 * may read it. After [[close]] nobody may; who does gets an IllegalStateException where a block begins.
 */
private[incremental] final class SstTable private (val file: File, isMapped: Boolean, missing: MissingBytes)
    extends AutoCloseable {
  private val source = new SstFile(file)
  private val bytes = source.bytes
  private var mapping: MappedByteBuffer = _
  private var address = 0L

  /** Metadata of a table that is not mapped. */
  private var copies = List.empty[SstRoom]
  private var checksum: SstChecksum = _
  private var properties = Map.empty[String, Long]
  private var otherBlocks = Vector.empty[(String, SstHandle)]

  /** Where the index block and its restarts are; one of these for each data block. */
  private var index = 0L
  private var restarts = 0L
  private var blockCount = 0
  private var filter = 0L
  private var filterLines = 0
  private var filterProbes = 0
  private var keyFooter = 0
  private var valueLengths = false

  /** For each data block of a mapped table, whether its checksum was found right. Null when not mapped, or closed. */
  private var verified: Array[Boolean] = _

  try {
    if (isMapped) {
      mapping = source.map()
      address = OffHeap.mapped(mapping)
    }
    source.keepEnd()
    parse()
    source.forgetEnd()
  } catch {
    case e: Throwable =>
      close()
      throw e
  }

  private def parse(): Unit = {
    if (bytes < SstFormat.footerBytes) damaged(0, "it is too short for an SST")
    val footerAt = bytes - SstFormat.footerBytes
    val footer = new SstRoom
    copies ::= footer
    val start = footer.put(source.read(footerAt, SstFormat.footerBytes))
    if (OffHeap.getLong(null, start + SstFormat.footerBytes - 8) != SstFormat.magic) {
      damaged(footerAt, "it does not end as an SST does")
    }
    val version = OffHeap.getInt(null, start + SstFormat.footerBytes - 12)
    require(version >= 2 && version <= 5, s"its format_version is $version")
    val kind = OffHeap.getByte(null, start)
    checksum = SstChecksum(kind).getOrElse(throw new UnsupportedSstException(s"$file: its checksums are of kind $kind"))
    val handles = new VarintReader(start + 1)
    val meta = readHandle(handles)
    val indexHandle = readHandle(handles)
    readMeta(meta)
    require(number("rocksdb.block.based.table.index.type") == 0, "its index is partitioned or hashed")
    require(number("rocksdb.num.range-deletions") == 0, "it has range deletions")
    readIndex(indexHandle)
  }

  private def require(condition: Boolean, otherwise: => String): Unit =
    if (!condition) throw new UnsupportedSstException(s"$file: $otherwise")

  private def damaged(offset: Long, reason: String): Nothing = throw new DamagedSstException(file, offset, reason)

  private def number(name: String): Long = properties.getOrElse(name, 0L)

  private def readHandle(from: VarintReader): SstHandle = {
    val offset = from.varint()
    val length = from.varint()
    if (offset < 0 || length < 4 || length > Int.MaxValue - SstFormat.trailerBytes ||
      offset > bytes - SstFormat.trailerBytes - length) {
      damaged(math.max(0, bytes - SstFormat.footerBytes), s"a block of $length bytes at $offset lies outside the file")
    }
    SstHandle(offset, length.toInt)
  }

  /** Where the content of a block of metadata is, verified; it stays there until the table is closed. */
  private def metadata(handle: SstHandle): Long = {
    val block = read(handle)
    if (isMapped) address + handle.offset
    else {
      val copy = new SstRoom
      copies ::= copy
      copy.put(block)
    }
  }

  /** A block with its trailer, verified. */
  private def read(handle: SstHandle): Array[Byte] = {
    val block = source.read(handle.offset, handle.bytes + SstFormat.trailerBytes)
    verify(block, 0, handle)
    block
  }

  private def verify(content: Array[Byte], from: Int, handle: SstHandle): Unit = {
    if (!checksum.holds(content, from, handle.bytes)) {
      damaged(handle.offset, s"the checksum of the block of ${handle.bytes} bytes there is wrong")
    }
    require(content(from + handle.bytes) == SstFormat.uncompressed, s"the block at ${handle.offset} is compressed")
  }

  private def readMeta(handle: SstHandle): Unit =
    foreachPlainEntry(handle) { (name, at, _) =>
      val block = readHandle(new VarintReader(at))
      if (name == SstFormat.propertiesName) readProperties(block)
      else if (name == SstFormat.filterName) { if (isMapped) readFilter(block) }
      else otherBlocks :+= name -> block
    }

  /** The blocks that RocksDB leaves alone whose names begin so, in the order of their names. */
  def blocksNamed(prefix: String): Seq[SstHandle] =
    otherBlocks.collect { case (name, handle) if name.startsWith(prefix) => handle }

  private def readFilter(handle: SstHandle): Unit = {
    val start = metadata(handle)
    val end = start + handle.bytes
    val lines = (handle.bytes - SstFilter.trailerBytes) / SstFilter.lineBytes
    if (lines > 0 && OffHeap.getByte(null, end - 5) == -1 && OffHeap.getByte(null, end - 4) == 0) {
      filter = start
      filterLines = lines
      filterProbes = OffHeap.getByte(null, end - 3) & 31
    }
  }

  private def readProperties(handle: SstHandle): Unit =
    foreachPlainEntry(handle) { (name, at, length) =>
      if (name == "rocksdb.comparator") {
        val comparator = new String(Bytes.array(at, length), UTF_8)
        require(comparator == SstFormat.comparatorName, s"its comparator is $comparator")
      } else if (missing != null && name == "rocksdb.compression") {
        val compression = new String(Bytes.array(at, length), UTF_8)
        require(compression == "NoCompression", s"it is compressed ($compression)") // its first block may not be there
      } else if (name == "rocksdb.block.based.table.index.type") properties += name -> OffHeap.getInt(null, at).toLong
      else if (SstTable.numbers(name)) properties += name -> new VarintReader(at).varint()
    }

  private def foreachPlainEntry(handle: SstHandle)(use: (String, Long, Int) => Unit): Unit = {
    val start = metadata(handle)
    val end = start + handle.bytes - 4 - 4L * OffHeap.getInt(null, start + handle.bytes - 4)
    if (end < start) damaged(handle.offset, "its metadata cannot be read")
    val entry = new VarintReader(start)
    var name = Array.emptyByteArray
    while (entry.at < end) {
      val shared = entry.varint().toInt
      val rest = entry.varint().toInt
      val length = entry.varint().toInt
      name = name.take(shared) ++ Bytes.array(entry.at, rest)
      use(new String(name, UTF_8), entry.at + rest, length)
      entry.at += rest + length
    }
  }

  private def readIndex(handle: SstHandle): Unit = {
    index = metadata(handle)
    blockCount = OffHeap.getInt(null, index + handle.bytes - 4)
    restarts = index + handle.bytes - 4 - 4L * blockCount
    require(blockCount == number("rocksdb.num.data.blocks"), "its index has restart intervals other than 1")
    if (blockCount < 0 || restarts < index) damaged(handle.offset, "its index cannot be read")
    keyFooter = if (number("rocksdb.index.key.is.user.key") == 1) 0 else SstFormat.keyFooterBytes
    valueLengths = number("rocksdb.index.value.is.delta.encoded") == 0
    if (isMapped) verified = new Array[Boolean](blockCount)
    if (blockCount > 0) require(compressionOf(block(0)) == SstFormat.uncompressed, "it is compressed")
  }

  private def compressionOf(handle: SstHandle): Byte = source.read(handle.offset + handle.bytes, 1)(0)

  /** Number of data blocks. */
  def blocks: Int = {
    if (blockCount < 0) throw new IllegalStateException(s"$file is closed")
    blockCount
  }

  /** Number of entries, removals too. */
  def entries: Long = number("rocksdb.num.entries")

  /** Whether a key with that hash may be in it; one that is not mapped does not tell. */
  def mayContain(hash: Long): Boolean = filter == 0 || SstFilter.mayContain(hash, filterProbes, filter, filterLines)

  /** Where an entry of the index goes on after its first byte, a zero: nothing in common with the one before. */
  private def indexEntry(i: Int): Long = {
    val entry = index + (OffHeap.getInt(null, restarts + 4L * i) & 0xffffffffL)
    if (entry >= restarts) changed(index)
    entry + 1
  }

  /**
   * For readers of verified content that find something impossible there: a page that the operating system dropped and
   * could not read again has anything in it, until the JVM throws its InternalError. Nobody may follow such an offset.
   */
  def changed(at: Long): Nothing =
    damaged(if (isMapped) at - address else 0, "what was verified there before is something else now")

  /** Where a data block is. */
  def block(i: Int): SstHandle = {
    val entry = new VarintReader(indexEntry(i))
    val length = entry.varint()
    if (valueLengths) entry.varint()
    if (length < 0 || length > restarts - entry.at) changed(index)
    entry.at += length
    readHandle(entry)
  }

  /** Whether the file may not be there as a whole. */
  def isSparse: Boolean = missing != null

  /** Whether a data block of a mapped table has been read, and found right. */
  def isVerified(i: Int): Boolean = {
    val known = verified
    known != null && known(i)
  }

  /**
   * Where the content of a data block is: verified, until the table is closed or the room is used again.
   *
   * @param room   the reader's own, for a block of a table that is not mapped
   * @param ahead  how many blocks behind it the reader will want too
   */
  def content(i: Int, handle: SstHandle, room: SstRoom, ahead: Int): Long = {
    val known = verified
    if (known == null || !known(i)) load(i, handle, room, ahead)
    else address + handle.offset
  }

  private def load(i: Int, handle: SstHandle, room: SstRoom, ahead: Int): Long =
    if (blockCount < 0) throw new IllegalStateException(s"$file is closed")
    else if (!isMapped) content(handle, room)
    else {
      verifyFrom(i, handle, ahead)
      address + handle.offset
    }

  /** The content of a block that is no data block, or of a table that is not mapped. */
  def content(handle: SstHandle, room: SstRoom): Long = room.put(read(handle))

  /**
   * Verifies data blocks that nobody has read, from that one on, as many as are read at once. The block to go on with,
   * and how many bytes were read; None: there are no more.
   *
   * @throws DamagedSstException where one is damaged
   */
  def verifyUnread(from: Int): Option[(Int, Long)] =
    (from until blocks).find(!isVerified(_)).map { first =>
      val start = block(first)
      val last = verifyFrom(first, start, ahead = Int.MaxValue)
      val end = block(last)
      (last + 1, end.offset + end.bytes + SstFormat.trailerBytes - start.offset)
    }

  /** Verifies a block, and others behind it, in one read. The last of them. */
  private def verifyFrom(first: Int, handle: SstHandle, ahead: Int): Int = {
    var last = first
    var end = handle
    var more = true
    while (more && last - first < ahead && last + 1 < blockCount) {
      val next = block(last + 1)
      more = next.offset >= end.offset && next.offset + next.bytes - handle.offset < SstTable.verifiedAtOnceBytes
      if (more) {
        last += 1
        end = next
      }
    }
    val length = Math.toIntExact(end.offset + end.bytes + SstFormat.trailerBytes - handle.offset)
    var content = source.read(handle.offset, length)
    if (missing != null && !areThere(first, last, handle, content)) {
      missing.fetch(handle.offset, math.max(length, if (ahead > 0) SstTable.fetchedAheadBytes else SstTable.fetchedBytes))
      content = source.read(handle.offset, length)
    }
    var i = first
    while (i <= last) {
      val one = if (i == first) handle else block(i)
      verify(content, (one.offset - handle.offset).toInt, one)
      verified(i) = true
      i += 1
    }
    last
  }

  /** Whether the content is that of the blocks, and not in part a hole. */
  private def areThere(first: Int, last: Int, handle: SstHandle, content: Array[Byte]): Boolean =
    (first to last).forall { i =>
      val one = if (i == first) handle else block(i)
      checksum.holds(content, (one.offset - handle.offset).toInt, one.bytes)
    }

  /** The first block that can have the key or a greater one; [[blocks]] when none has. */
  def blockOf(key: AnyRef, keyAt: Long, keyLength: Int): Int = {
    var low = 0
    var high = blocks
    while (low < high) {
      val middle = (low + high) >>> 1
      if (compareIndexed(middle, key, keyAt, keyLength) < 0) low = middle + 1 else high = middle
    }
    low
  }

  private def compareIndexed(i: Int, key: AnyRef, keyAt: Long, keyLength: Int): Int = {
    var at = indexEntry(i)
    var byte = OffHeap.getByte(null, at)
    var length = byte & 0x7f
    var shift = 7
    while (byte < 0 && shift < 32) {
      at += 1
      byte = OffHeap.getByte(null, at)
      length |= (byte & 0x7f) << shift
      shift += 7
    }
    at += 1
    if (valueLengths) {
      while (OffHeap.getByte(null, at) < 0 && at < restarts) at += 1
      at += 1
    }
    if (length < keyFooter || length > restarts - at) changed(index)
    Bytes.compare(null, at, length - keyFooter, key, keyAt, keyLength)
  }

  /** Any number of times; nobody reads it at the same time. */
  def close(): Unit = {
    blockCount = -1
    verified = null
    filter = 0
    source.close()
    copies.foreach(_.free())
    copies = Nil
    if (mapping != null) {
      OffHeap.unmapped(address)
      StorageUtils.dispose(mapping)
    }
    mapping = null
  }
}

private[incremental] object SstTable {
  private val verifiedAtOnceBytes = 64 << 10

  /** What is fetched of a file that is not there at least: a request takes as long for less. */
  val fetchedBytes: Int = 128 << 10
  private val fetchedAheadBytes = 2 << 20
  private val numbers = Set(
    "rocksdb.num.range-deletions",
    "rocksdb.num.data.blocks",
    "rocksdb.num.entries",
    "rocksdb.index.key.is.user.key",
    "rocksdb.index.value.is.delta.encoded")

  /**
   * Opens a table whose blocks are read in place, from a mapping of the file.
   *
   * @param missing where the file comes from bit by bit, while it is not there as a whole; null: it is
   * @throws UnsupportedSstException when it is of another kind than described above, or has more than 2 GiB
   * @throws DamagedSstException when it is no SST, or its metadata is damaged
   * @throws IOException when it cannot be read or mapped
   */
  def map(file: File, missing: MissingBytes = null): SstTable = new SstTable(file, isMapped = true, missing)

  /** Opens a table, of any length, whose data blocks are read one after the other; exceptions as for [[map]]. */
  def read(file: File): SstTable = new SstTable(file, isMapped = false, null)
}

/** Brings bytes of a file that is not there as a whole to their places in it. Any number of threads. */
private[incremental] trait MissingBytes {

  /** Those from an offset on, as far as there are any; throws an IOException that says why not. */
  def fetch(offset: Long, length: Long): Unit
}

/** Memory outside the heap for one block at a time. One thread. */
private[incremental] final class SstRoom {
  private var address = 0L
  private var room = 0

  /** Copies a block to it, instead of what was there. Returns the address. */
  def put(block: Array[Byte]): Long = {
    if (block.length > room) {
      free()
      address = OffHeap.allocate(block.length)
      room = block.length
    }
    Bytes.put(block, address)
    address
  }

  def free(): Unit = {
    if (address != 0) OffHeap.free(address)
    address = 0
    room = 0
  }
}
