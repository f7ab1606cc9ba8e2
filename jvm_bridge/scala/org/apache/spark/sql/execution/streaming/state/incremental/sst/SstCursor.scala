package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.util.zip.CRC32C

import com.github.luben.zstd.Zstd
import net.jpountz.lz4.LZ4Factory
import org.xerial.snappy.Snappy

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, OffHeap, Record, RowSizes}

// Entries of an SST in key order, and the blocks that a cursor reads them from.

/**
 * A cursor over rows in key order. Key and value lie outside the heap and stay until the next move. It begins on the
 * first row, if there is a row. One thread.
 */
private[incremental] abstract class Cursor {
  /** Returns true if the cursor stands on a row. */
  def valid: Boolean
  def keyAddress: Long
  def keyLength: Int
  def valueAddress: Long

  /** The length of the value in bytes, or [[Record.removed]] for a removed key if the source shows removals. */
  def valueLength: Int

  def next(): Unit
  def close(): Unit

  /** Number of removed keys that the cursor has skipped, if its source skips and counts them. */
  def passed: Long = 0

  /** Returns true if the cursor stands on a row whose key is less than `until` (null: on any row). */
  final def isBefore(until: Array[Byte]): Boolean =
    valid && (until == null || Bytes.compare(until, keyAddress, keyLength) > 0)
}

/**
 * A cursor over all entries of an SST in key order, removals included. It begins before the first entry: call
 * [[seekToFirst]] or [[seek]]. It throws IllegalStateException when it is moved after [[close]].
 *
 * @param lent memory for a block, which stays after [[close]]; null: the cursor has its own
 */
private[incremental] final class SstCursor(table: SstTable, lent: SstRoom = null) extends Cursor {
  private val room = if (lent == null) new SstRoom else lent
  private val entries = new SstEntries(room)
  private val entry = entries.entry
  private var block = 0
  private var end = 0L
  private var keyBuffer = 0L
  private var keyRoom = 0

  /** Length of the key with its footer; 0 before the first key of a block. */
  private var keyBytes = 0

  /** Number of blocks after the next that a read verifies in advance; it grows as the scan goes on. */
  private var ahead = 0

  var valid = false
  var keyAddress = 0L
  var keyLength = 0
  var valueAddress = 0L
  var valueLength = 0

  /** Returns a copy of the key. */
  def key: Array[Byte] = Bytes.array(keyAddress, keyLength)

  /** Moves to the first entry. */
  def seekToFirst(): Unit = {
    if (block == SstCursor.closed) throw new IllegalStateException(s"A cursor over ${table.file} is closed")
    block = -1
    ahead = SstCursor.maxAhead
    nextBlock()
  }

  /** Moves to the first entry whose key is not less than this one. */
  def seek(key: Array[Byte]): Unit = {
    block = table.blockOf(key, OffHeap.arrayBase, key.length) - 1
    ahead = 0
    if (enterBlock()) {
      entries.seek(key)
      keyBytes = 0
      read()
    }
    while (valid && Bytes.compare(key, keyAddress, keyLength) > 0) next()
  }

  def next(): Unit = if (entry.at < end) read() else nextBlock()

  private def nextBlock(): Unit = if (enterBlock()) {
    entry.at = entries.start
    keyBytes = 0
    read()
  }

  /** Moves into the next block. Returns false if there is none. */
  private def enterBlock(): Boolean = {
    if (block < -1) throw new IllegalStateException(s"A cursor over ${table.file} is closed")
    block += 1
    valid = false
    table.checkWhole()
    if (block < table.blocks) {
      entries.read(table, block, ahead)
      ahead = math.min(2 * ahead + 1, SstCursor.maxAhead)
      end = entries.end
      valid = true
    }
    valid
  }

  /**
   * Reads an entry. The bytes that its key shares with the key before may include bytes of the footer, which can look
   * like the beginning of a longer key. So the cursor keeps keys with their footers.
   */
  private def read(): Unit = {
    val shared = entry.length()
    val rest = entry.length()
    val bytes = entry.length()
    if (isImpossible(shared, rest, bytes)) table.changed(entries.start)
    if (shared == 0) keyAddress = entry.at
    else joinKey(shared, rest)
    keyBytes = shared + rest
    keyLength = keyBytes - SstFormat.keyFooterBytes
    valueAddress = entry.at + rest
    valueLength = table.valueLength(OffHeap.getByte(null, keyAddress + keyLength), bytes)
    entry.at = valueAddress + bytes
  }

  private def isImpossible(shared: Int, rest: Int, bytes: Int): Boolean =
    shared < 0 || rest < 0 || bytes < 0 || shared > keyBytes || shared + rest < SstFormat.keyFooterBytes ||
      entry.at + rest + bytes > end

  /** Joins the first bytes of the key before with the rest of this one. */
  private def joinKey(shared: Int, rest: Int): Unit = {
    if (shared + rest > keyRoom) growKey(shared + rest)
    if (keyAddress != keyBuffer) OffHeap.copyMemory(null, keyAddress, null, keyBuffer, shared)
    OffHeap.copyMemory(null, entry.at, null, keyBuffer + shared, rest)
    keyAddress = keyBuffer
  }

  private def growKey(bytes: Int): Unit = {
    val room = math.max(256, RowSizes.doubled(bytes))
    val larger = OffHeap.allocate(room)
    if (keyAddress == keyBuffer && keyBuffer != 0) {
      OffHeap.copyMemory(null, keyBuffer, null, larger, keyRoom)
      keyAddress = larger
    }
    if (keyBuffer != 0) OffHeap.free(keyBuffer)
    keyBuffer = larger
    keyRoom = room
  }

  /** Frees the cursor's memory. May be called repeatedly. */
  def close(): Unit = {
    valid = false
    end = 0
    entry.at = 0
    block = SstCursor.closed
    if (keyBuffer != 0) OffHeap.free(keyBuffer)
    keyBuffer = 0
    keyRoom = 0
    if (lent == null) room.free()
  }
}

private object SstCursor {
  private val maxAhead = 15
  private val closed = Int.MinValue
}

/**
 * The entries of one data block at a time, and the search among its restarts. One thread.
 *
 * @param room shows the block
 */
private[sst] final class SstEntries(room: SstRoom) {

  /** Stands on an entry. */
  val entry = new VarintReader(0)
  private var table: SstTable = _

  /** Address of the first entry, and that after the last: of the restarts. */
  var start = 0L
  var end = 0L
  private var restarts = 0

  /** Reads a block, as [[SstTable.read]] does. */
  def read(from: SstTable, block: Int, ahead: Int): Unit = {
    table = from
    table.read(block, room, ahead)
    start = room.start
    val restartsEnd = start + room.bytes - 4
    end = table.restartsAt(start, restartsEnd)
    restarts = ((restartsEnd - end) >>> 2).toInt
  }

  /** Moves to the last restart whose key is not greater than this one, or to the first. */
  def seek(key: Array[Byte]): Unit = {
    var low = 0
    var high = restarts - 1
    while (low < high) {
      val middle = (low + high + 1) >>> 1
      entry.at = restart(middle)
      entry.length()
      val length = entry.length() - SstFormat.keyFooterBytes
      entry.length()
      if (length > end - entry.at) table.changed(start)
      if (Bytes.compare(key, entry.at, length) >= 0) low = middle else high = middle - 1
    }
    entry.at = restart(low)
  }

  private def restart(i: Int): Long = {
    val at = start + (OffHeap.getInt(null, end + 4L * i) & 0xffffffffL)
    if (at >= end) table.changed(start)
    at
  }
}

/** The blocks of a file, verified by their checksums, and decompressed. Any number of threads. */
private[sst] final class SstBlocks(source: SstFile) {

  /**
   * Reads a block, with its trailer, from the file.
   *
   * @throws DamagedSstException if its checksum is wrong or the file is too short
   */
  def read(handle: SstHandle): Array[Byte] = {
    val block = source.read(handle.offset, handle.length)
    verify(block, 0, handle)
    block
  }

  /**
   * Verifies a block in bytes that were read.
   *
   * @param from index in `content` at which the block begins
   * @throws DamagedSstException if its checksum is wrong
   */
  def verify(content: Array[Byte], from: Int, handle: SstHandle): Unit =
    if (!holds(content, from, handle)) {
      source.damaged(handle.offset, s"the checksum of the block of ${handle.bytes} bytes there is wrong")
    }

  /** Returns true if the block that begins at that index matches its checksum. */
  def holds(content: Array[Byte], from: Int, handle: SstHandle): Boolean = SstChecksum.holds(content, from,
    handle.bytes)

  /**
   * Shows a verified block in a room, where it lies if that is possible. A compressed block is verified each time: its
   * lengths are followed.
   *
   * @param at address of the block
   */
  def show(at: Long, handle: SstHandle, room: SstRoom): Unit =
    if (OffHeap.getByte(null, at + handle.bytes) == SstFormat.uncompressed) room.show(at, handle.bytes)
    else {
      val block = Bytes.array(at, handle.length)
      verify(block, 0, handle)
      put(block, handle, room)
    }

  /**
   * Puts the content of a verified block into a room.
   *
   * @param block the block with its trailer
   * @throws DamagedSstException if it cannot be decompressed
   * @throws UnsupportedSstException if the kind of compression is unknown
   */
  def put(block: Array[Byte], handle: SstHandle, room: SstRoom): Unit = {
    val kind = block(handle.bytes)
    if (kind == SstFormat.uncompressed) room.put(block, handle.bytes)
    else {
      val content =
        try SstCompression.content(kind, block, handle.bytes)
        catch { case e: Exception => source.damaged(handle.offset, s"the block there cannot be decompressed: $e") }
      source.require(content != null, s"the block at ${handle.offset} has the unknown compression $kind")
      room.put(content, content.length)
    }
  }
}

/** The kinds of compression: LZ4, which merges use if they are told to compress, and other usual ones of RocksDB. */
private object SstCompression {
  private lazy val lz4 = LZ4Factory.fastestInstance.safeDecompressor

  /** Returns the content of a block, null if the kind is unknown. An exception of any kind says that it is damaged. */
  def content(kind: Byte, block: Array[Byte], bytes: Int): Array[Byte] = kind match {
    case SstFormat.snappy =>
      val content = ofLength(Snappy.uncompressedLength(block, 0, bytes), 64L * bytes)
      filled(content, Snappy.uncompress(block, 0, bytes, content, 0))
    case SstFormat.lz4 | SstFormat.lz4High =>
      val (length, from) = sizeOf(block)
      val content = ofLength(length, 256L * bytes)
      filled(content, lz4.decompress(block, from, bytes - from, content, 0))
    case SstFormat.zstd =>
      val (length, from) = sizeOf(block)
      val content = ofLength(length, Zstd.getFrameContentSize(block, from, bytes - from))
      filled(content, Zstd.decompressByteArray(content, 0, content.length, block, from, bytes - from))
    case _ => null
  }

  /** Returns the length of the content, by which a block begins, and the place of what comes after it. */
  private def sizeOf(block: Array[Byte]): (Long, Int) = {
    var (length, at) = (0L, 0)
    do {
      length |= (block(at) & 0x7fL) << 7 * at
      at += 1
    } while (block(at - 1) < 0)
    (length, at)
  }

  /** @param most no block of its length has more; none has less than the number of its restarts */
  private def ofLength(length: Long, most: Long): Array[Byte] = {
    if (length < 4 || length > most) throw new IllegalArgumentException(s"it cannot have $length bytes")
    new Array[Byte](Math.toIntExact(length))
  }

  private def filled(content: Array[Byte], bytes: Long): Array[Byte] = {
    if (bytes != content.length) throw new IllegalArgumentException(s"it has $bytes bytes instead of ${content.length}")
    content
  }
}

/**
 * The masked CRC-32C that ends each block. It covers the content and the byte after it, the kind of compression. Any
 * number of threads.
 */
private[sst] object SstChecksum {

  /** Returns true if the footer of a file names this checksum. */
  def is(number: Byte): Boolean = number == SstFormat.crc32c

  /**
   * Returns true if the content of a block matches its checksum.
   *
   * @param from index in `bytes` at which the block begins
   * @param contentBytes bytes of its content, without the trailer
   */
  def holds(bytes: Array[Byte], from: Int, contentBytes: Int): Boolean = {
    val crc = new CRC32C
    crc.update(bytes, from, contentBytes + 1)
    SstFormat.masked(crc.getValue.toInt) ==
      OffHeap.getInt(bytes, OffHeap.arrayBase.toLong + from + contentBytes + 1)
  }
}

/** Blocks of tables in memory. */
private[incremental] trait BlockLender {

  /** Returns the block of that number with its trailer, which may be wrong; null if it is not there. */
  def block(table: SstTable, number: Int): Array[Byte]
}

private[incremental] object BlockLender {
  val none: BlockLender = (_, _) => null
}

/** The content of one block at a time, in a mapped file or in memory of its own outside the heap. One thread. */
private[incremental] final class SstRoom {
  private var address = 0L
  private var room = 0

  /** Place and length of the content, without a trailer, until the next block, [[free]], or the end of the table. */
  var start = 0L
  var bytes = 0

  /** Bytes of its own memory. */
  def ownBytes: Int = room

  private var lender: BlockLender = BlockLender.none

  /** Has blocks in memory that readers take rather than read them, from now on. */
  def borrow(from: BlockLender): Unit = lender = from

  /** Returns a block, with its trailer, that was read before but not verified; null if there is none. */
  def lent(table: SstTable, block: Int): Array[Byte] = lender.block(table, block)

  /** Shows content that lies at an address. */
  def show(at: Long, length: Int): Unit = {
    start = at
    bytes = length
  }

  /** Copies the first `length` bytes of an array into the memory, over the block before. */
  def put(content: Array[Byte], length: Int): Unit = {
    if (length > room) {
      free()
      address = OffHeap.allocate(length)
      room = length
    }
    OffHeap.copyMemory(content, OffHeap.arrayBase, null, address, length)
    show(address, length)
  }

  /** Frees the memory. May be called repeatedly. */
  def free(): Unit = {
    if (address != 0) OffHeap.free(address)
    address = 0
    room = 0
  }
}
