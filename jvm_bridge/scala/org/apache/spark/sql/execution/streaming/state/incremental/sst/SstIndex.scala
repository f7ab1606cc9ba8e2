package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.io.File
import java.nio.charset.StandardCharsets.UTF_8

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Arena, Bytes, OffHeap, Slots, StoreMemory}

// The parts of an SST that lead to its data blocks: footer and properties first, then the index and the filter, read
// and built.

/**
 * The metadata of an SST: its footer, properties, filter, and the place of its index. Each of its blocks is verified
 * when it is read. The blocks lie in the mapping of the file, or in copies that stay until [[close]].
 */
private[sst] final class SstMetadata(source: SstFile) extends AutoCloseable {
  private var mapping: SstMapping = _
  private var isVerified = false
  private var copies = List.empty[SstRoom]
  private var properties = Map.empty[String, Long]
  private var otherBlocks = Vector.empty[(String, SstHandle)]

  /** Results of [[read]]: the filter, and place and content of the index. */
  var filter: SstFilter = SstFilter.none
  var indexHandle: SstHandle = _
  var index: SstRoom = _

  /** The verified blocks of the file. */
  val blocks = new SstBlocks(source)

  /** Bytes of memory outside the heap. */
  def copiedBytes: Long = copies.iterator.map(_.ownBytes.toLong).sum

  /**
   * Reads the metadata. Called once.
   *
   * @param mapping the mapping of the file; null if there is none: then the filter is not read
   * @param isVerified true if this process has verified the metadata of this file before
   * @throws UnsupportedSstException if the file is of a kind that this store does not write
   * @throws DamagedSstException if the file is not an SST or its metadata is damaged
   */
  def read(mapping: SstMapping, isVerified: Boolean): Unit = {
    this.mapping = mapping
    this.isVerified = isVerified
    if (source.bytes < SstFormat.footerBytes) source.damaged(0, "the file is too short for an SST")
    val footer = new SstRoom
    try readFooter(footer)
    finally footer.free()
    source.require(number("rocksdb.block.based.table.index.type") == 0, "its index is partitioned or hashed")
    source.require(number("rocksdb.num.range-deletions") == 0, "it has range deletions")
    index = content(indexHandle)
  }

  private def readFooter(room: SstRoom): Unit = {
    val footerAt = source.bytes - SstFormat.footerBytes
    room.put(source.read(footerAt, SstFormat.footerBytes), SstFormat.footerBytes)
    val footer = room.start
    if (OffHeap.getLong(null, footer + SstFormat.footerBytes - 8) != SstFormat.magic) {
      source.damaged(footerAt, "the file does not end as an SST does")
    }
    val version = OffHeap.getInt(null, footer + SstFormat.footerBytes - 12)
    source.require(version >= 2 && version <= 5, s"its format_version is $version")
    val kind = OffHeap.getByte(null, footer)
    source.require(SstChecksum.is(kind), s"its checksums are of kind $kind")
    val handles = new VarintReader(footer + 1)
    val meta = source.handle(handles)
    indexHandle = source.handle(handles)
    readMeta(meta)
  }

  /** Returns the value of a property, 0 if the table does not have it. */
  def number(name: String): Long = properties.getOrElse(name, 0L)

  /** Returns the blocks that RocksDB ignores and whose names begin with a prefix, in the order of their names. */
  def blocksNamed(prefix: String): Seq[SstHandle] =
    otherBlocks.collect { case (name, handle) if name.startsWith(prefix) => handle }

  /** Returns a block's content, verified. */
  private def content(handle: SstHandle): SstRoom = {
    val content = newCopy()
    val at = if (mapping == null) 0 else mapping.at(handle)
    val block = if (isVerified && at != 0) null else blocks.read(handle)
    if (at != 0) blocks.show(at, handle, content) else blocks.put(block, handle, content)
    content
  }

  private def newCopy(): SstRoom = {
    copies ::= new SstRoom
    copies.head
  }

  private def readMeta(handle: SstHandle): Unit =
    foreachPlainEntry(handle) { (name, at, _) =>
      val block = source.handle(new VarintReader(at))
      if (name == SstFormat.propertiesName) readProperties(block)
      else if (name == SstFormat.filterName) { if (mapping != null) filter = filterIn(content(block)) }
      else {
        source.require(name != SstFormat.dictionaryName, "its blocks are compressed with a dictionary")
        otherBlocks :+= name -> block
      }
    }

  private def filterIn(content: SstRoom): SstFilter = SstFilter.in(content.start, content.bytes)

  private def readProperties(handle: SstHandle): Unit =
    foreachPlainEntry(handle) { (name, at, length) =>
      if (name == "rocksdb.comparator") {
        val comparator = new String(Bytes.array(at, length), UTF_8)
        source.require(comparator == SstFormat.comparatorName, s"its comparator is $comparator")
      } else if (name == "rocksdb.block.based.table.index.type") properties += name -> OffHeap.getInt(null, at).toLong
      else if (SstMetadata.numbers(name)) properties += name -> new VarintReader(at).varint()
    }

  private def foreachPlainEntry(handle: SstHandle)(use: (String, Long, Int) => Unit): Unit = {
    def damaged(): Nothing = source.damaged(handle.offset, "its metadata cannot be read")
    val block = content(handle)
    val start = block.start
    val restarts = OffHeap.getInt(null, start + block.bytes - 4)
    val end = start + block.bytes - 4 - 4L * restarts
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

/**
 * The index of a table: for each data block its place, and a key that no key in it is greater than. Any number of
 * threads, until [[close]].
 */
private[sst] final class SstIndex(table: SstTable, source: SstFile, metadata: SstMetadata) {
  private val start = metadata.index.start
  private val restartsEnd = start + metadata.index.bytes - 4
  private var count = OffHeap.getInt(null, restartsEnd)

  /** Address of the index's restarts; there is a restart for each data block. */
  private val restarts = restartsEnd - 4L * count
  source.require(count == metadata.number("rocksdb.num.data.blocks"), "its index has restart intervals other than 1")
  if (restarts < start) unreadable()
  private val keyFooter = if (metadata.number("rocksdb.index.key.is.user.key") == 1) 0 else SstFormat.keyFooterBytes
  private var fences: SstFences = _
  private var searches = 0
  private val valueLengths = metadata.number("rocksdb.index.value.is.delta.encoded") == 0

  /**
   * Checks that the entries and their blocks follow each other as they were written.
   *
   * @throws DamagedSstException if they do not
   */
  def verify(): Unit = {
    val entry = new VarintReader(start)
    var end = 0L
    var i = 0
    while (i < count) {
      val isNext = entry.at == start + (OffHeap.getInt(null, restarts + 4L * i) & 0xffffffffL)
      if (!isNext || entry.length() != 0) unreadable()
      val length = entry.length()
      if (valueLengths) entry.length()
      if (length < keyFooter || length > restarts - entry.at) unreadable()
      entry.at += length
      val block = source.handle(entry)
      if (block.offset < end) unreadable()
      end = block.offset + block.bytes
      i += 1
    }
    if (entry.at != restarts) unreadable()
  }

  private def unreadable(): Nothing = source.damaged(metadata.indexHandle.offset, "its index cannot be read")

  /** Number of data blocks; -1 after [[close]]. */
  def blocks: Int = count

  /** Returns the place of the i-th data block. */
  def block(i: Int): SstHandle = {
    val entry = new VarintReader(entryAt(i))
    val length = keyLength(entry)
    entry.at += length
    source.handle(entry)
  }

  /** Reads the length of an entry's key, and moves to the key. */
  private def keyLength(entry: VarintReader): Int = {
    val length = entry.varint()
    if (valueLengths) entry.varint()
    if (length < keyFooter || length > restarts - entry.at) table.changed(start)
    length.toInt
  }

  /** Returns the address of an entry after its first byte, a zero: an entry shares no bytes with the one before. */
  private def entryAt(i: Int): Long = {
    val entry = start + (OffHeap.getInt(null, restarts + 4L * i) & 0xffffffffL)
    if (entry >= restarts) table.changed(start)
    entry + 1
  }

  /**
   * Returns the first block that can hold the key or a greater one, or [[blocks]] if there is none.
   *
   * @param key the key's place, with `keyAt`, as [[OffHeap]] takes it
   */
  def blockOf(key: AnyRef, keyAt: Long, keyLength: Int): Int = {
    var low = 0
    var high = count
    val words = fences
    if (words == null) noteSearch()
    else if (words.covers(key, keyAt, keyLength)) {
      val word = words.wordOf(key, keyAt, keyLength)
      low = words.from(word)
      high = words.until(word, high)
    }
    while (low < high) {
      val middle = (low + high) >>> 1
      if (compare(middle, key, keyAt, keyLength) < 0) low = middle + 1 else high = middle
    }
    low
  }

  /**
   * Counts a search, and makes fences when there were as many searches as the fences cost. Threads that overwrite each
   * other's count do no harm.
   */
  private def noteSearch(): Unit = if (count >= SstIndex.minFenced) {
    searches += 1
    if (searches > count / SstIndex.blocksPerSearch) fences = SstFences.of(count, keyOf)
  }

  private def keyOf(i: Int): Array[Byte] = {
    val entry = new VarintReader(entryAt(i))
    val length = keyLength(entry)
    Bytes.array(entry.at, length - keyFooter)
  }

  /** Compares the key of the i-th entry with a key. */
  private def compare(i: Int, key: AnyRef, keyAt: Long, keyLength: Int): Int = {
    var at = entryAt(i)
    var byte = OffHeap.getByte(null, at)
    var length = byte & 0x7f
    var shift = 7
    while (byte < 0) { // the restart that led here ends it at the latest
      at += 1
      byte = OffHeap.getByte(null, at)
      length |= (byte & 0x7f) << shift
      shift += 7
    }
    at += 1
    if (valueLengths) {
      while (OffHeap.getByte(null, at) < 0) at += 1
      at += 1
    }
    if (length < keyFooter || length > restarts - at) table.changed(start)
    Bytes.compare(null, at, length - keyFooter, key, keyAt, keyLength)
  }

  /** Closes the index. May be called repeatedly. */
  def close(): Unit = count = -1
}

private object SstIndex {
  /** The number of blocks from which fences pay. */
  private val minFenced = 64

  /** Blocks that a search pays for: a fence costs a read of one entry and saves some ten reads of each search. */
  private val blocksPerSearch = 64
}

/**
 * A word of every eighth key of an index, close together. A search looks at these first and then at a few entries of
 * the index, each of which comes from main memory. Any number of threads.
 *
 * @param prefix the prefix of all these keys
 * @param words the 8 bytes after the prefix, in the order of the keys
 */
private[sst] final class SstFences private (prefix: Array[Byte], words: Array[Long]) {

  /** Returns true if a key has the prefix; the fences say nothing of other keys. */
  def covers(key: AnyRef, keyAt: Long, keyLength: Int): Boolean =
    keyLength >= prefix.length && Bytes.equal(key, keyAt, prefix, OffHeap.arrayBase, prefix.length)

  /** Returns the 8 bytes of a key after the prefix. */
  def wordOf(key: AnyRef, keyAt: Long, keyLength: Int): Long = Bytes.word(key, keyAt, keyLength, prefix.length)

  /** Returns the first entry of the index that may be at or after a key with that word. */
  def from(word: Long): Int = {
    val less = countLess(word)
    if (less == 0) 0 else (less - 1) * SstFences.every + 1
  }

  /**
   * Returns an entry that is greater than every key with that word, or the number of entries if none is known to be.
   */
  def until(word: Long, entries: Int): Int = {
    val notGreater = if (word == -1L) words.length else countLess(word + 1)
    if (notGreater == words.length) entries else notGreater * SstFences.every
  }

  private def countLess(word: Long): Int = {
    var low = 0
    var high = words.length
    while (low < high) {
      val middle = (low + high) >>> 1
      if (java.lang.Long.compareUnsigned(words(middle), word) < 0) low = middle + 1 else high = middle
    }
    low
  }
}

private[sst] object SstFences {
  private val every = 8

  /**
   * Returns the fences of an index.
   *
   * @param keys number of its entries, more than one
   * @param key returns the key of an entry
   */
  def of(keys: Int, key: Int => Array[Byte]): SstFences = {
    val places = 0 until keys - 1 by every // the last key of an index is longer or shorter than the others
    val first = key(places.head)
    val different = java.util.Arrays.mismatch(first, key(places.last))
    val prefix = java.util.Arrays.copyOf(first, if (different < 0) first.length else different)
    new SstFences(prefix,
      places.iterator.map { i =>
        val entry = key(i)
        Bytes.word(entry, OffHeap.arrayBase, entry.length, prefix.length)
      }.toArray)
  }
}

/**
 * Builds the index block of an SST outside the heap: for each data block a key that is not less than its last key and
 * less than the first key of the next block. The caller frees it. One thread.
 */
private[sst] final class SstIndexBuilder(memory: StoreMemory, spillDirectory: File) {
  private val content = new Arena(memory, spillDirectory)
  private val restarts = new Arena(memory, spillDirectory)
  private var contentBytes = 0L
  private var count = 0

  def entries: Int = count

  /** Length of the block in bytes. */
  def bytes: Long = contentBytes + 4L * count + 4

  /**
   * Adds a block.
   *
   * @param last address of the block's last key
   * @param next address of the key after it
   */
  def add(last: Long, lastLength: Int, next: Long, nextLength: Int, handle: SstHandle): Unit = {
    val common = Bytes.common(last, lastLength, next, nextLength)
    val shortened = common < lastLength && common < nextLength && {
      val byte = OffHeap.getByte(null, last + common) & 0xff
      byte + 1 < (OffHeap.getByte(null, next + common) & 0xff)
    }
    put(last, if (shortened) common + 1 else lastLength, handle, shortened)
  }

  /** Adds the last block, after which there is no key. */
  def addLast(last: Long, lastLength: Int, handle: SstHandle): Unit = put(last, lastLength, handle, incremented = false)

  private def put(key: Long, length: Int, handle: SstHandle, incremented: Boolean): Unit = {
    val before = SstWriter.varint(0) ++ SstWriter.varint(length)
    val after = SstWriter.handleBytes(handle)
    OffHeap.putInt(null, restarts.allocate(4), Math.toIntExact(contentBytes))
    count += 1
    val entryBytes = before.length.toLong + length + after.length
    val at = content.allocate(entryBytes)
    val keyAt = at + before.length
    Bytes.put(before, at)
    OffHeap.copyMemory(null, key, null, keyAt, length)
    if (incremented) OffHeap.putByte(null, keyAt + length - 1, (OffHeap.getByte(null, keyAt + length - 1) + 1).toByte)
    Bytes.put(after, keyAt + length)
    contentBytes += entryBytes
  }

  /** Puts the index, without a trailer, into a file. */
  def finish(out: SstBlockWriter): Unit = {
    putAll(content, out)
    putAll(restarts, out)
    out.ensure(4)
    out.putInt(count)
  }

  private def putAll(arena: Arena, out: SstBlockWriter): Unit =
    for (i <- 0 until arena.segmentCount) out.putBytes(null, arena.segmentStart(i),
      arena.segmentEnd(i) - arena.segmentStart(i))

  def free(): Unit = {
    content.free()
    restarts.free()
  }
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
      if (probes <= maxProbes) new SstFilter(start, lines, probes) else none
    } else none
  }

  /** RocksDB's filters ask no more; a larger number says that lines are longer, a negative one makes no probe. */
  private val maxProbes = 30
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
