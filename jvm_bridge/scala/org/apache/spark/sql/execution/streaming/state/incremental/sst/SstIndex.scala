package org.apache.spark.sql.execution.streaming.state.incremental.sst

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, OffHeap}

/**
 * The index of a table: for each data block where it is, and a key that none in it is greater than. Any number of threads
 * until [[close]].
 */
private[sst] final class SstIndex(table: SstTable, source: SstFile, metadata: SstMetadata) {
  private val start = metadata.index
  private val restartsEnd = start + metadata.indexHandle.bytes - 4
  private var count = OffHeap.getInt(null, restartsEnd)

  /** Where its restarts are; one of these for each data block. */
  private val restarts = restartsEnd - 4L * count
  source.require(count == metadata.number("rocksdb.num.data.blocks"), "its index has restart intervals other than 1")
  if (count < 0 || restarts < start) unreadable()
  private val keyFooter = if (metadata.number("rocksdb.index.key.is.user.key") == 1) 0 else SstFormat.keyFooterBytes
  private var fences: SstFences = _
  private var searches = 0
  private val valueLengths = metadata.number("rocksdb.index.value.is.delta.encoded") == 0

  /** Throws unless its entries, and the blocks where they are, follow one another as they were written. */
  def verify(): Unit = {
    val entry = new VarintReader(start)
    var end = 0L
    var i = 0
    while (i < count) {
      val isNext = entry.at == start + (OffHeap.getInt(null, restarts + 4L * i) & 0xffffffffL) && entry.at < restarts
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

  /** Number of data blocks, -1 when it is closed. */
  def blocks: Int = count

  /** Where a data block is. */
  def block(i: Int): SstHandle = {
    val entry = new VarintReader(entryAt(i))
    val length = entry.varint()
    if (valueLengths) entry.varint()
    if (length < 0 || length > restarts - entry.at) table.changed(start)
    entry.at += length
    source.handle(entry)
  }

  /** Where an entry goes on after its first byte, a zero: nothing in common with the one before. */
  private def entryAt(i: Int): Long = {
    val entry = start + (OffHeap.getInt(null, restarts + 4L * i) & 0xffffffffL)
    if (entry >= restarts) table.changed(start)
    entry + 1
  }

  /** The first block that can have the key or a greater one; [[blocks]] when none has. */
  def blockOf(key: AnyRef, keyAt: Long, keyLength: Int): Int = {
    var low = 0
    var high = count
    val known = fences
    if (known == null) noteSearch()
    else if (known.know(key, keyAt, keyLength)) {
      val word = known.wordOf(key, keyAt, keyLength)
      low = known.from(word)
      high = known.until(word, high)
    }
    while (low < high) {
      val middle = (low + high) >>> 1
      if (compare(middle, key, keyAt, keyLength) < 0) low = middle + 1 else high = middle
    }
    low
  }

  /** Makes fences when as many searches came as they cost. That threads count some of them as one does no harm. */
  private def noteSearch(): Unit = if (count >= SstIndex.leastFenced) {
    searches += 1
    if (searches > count / SstIndex.blocksPerSearch) fences = SstFences.of(count, keyOf)
  }

  private def keyOf(i: Int): Array[Byte] = {
    val entry = new VarintReader(entryAt(i))
    val length = entry.varint()
    if (valueLengths) entry.varint()
    if (length < keyFooter || length > restarts - entry.at) table.changed(start)
    Bytes.array(entry.at, length.toInt - keyFooter)
  }

  /** Compares the key of an entry with that one. */
  private def compare(i: Int, key: AnyRef, keyAt: Long, keyLength: Int): Int = {
    var at = entryAt(i)
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
    if (length < keyFooter || length > restarts - at) table.changed(start)
    Bytes.compare(null, at, length - keyFooter, key, keyAt, keyLength)
  }

  /** Any number of times. */
  def close(): Unit = count = -1
}

private object SstIndex {
  /** Blocks of an index that is small enough without fences. */
  private val leastFenced = 64

  /** A fence takes a look at an entry, which a search spares ten times. */
  private val blocksPerSearch = 64
}
