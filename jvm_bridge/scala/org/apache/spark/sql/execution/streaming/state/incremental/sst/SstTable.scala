package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.io.{File, IOException}
import java.nio.MappedByteBuffer

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{OffHeap, Record}
import org.apache.spark.storage.StorageUtils

/**
 * An SST, read without RocksDB: block-based table of format_version 2 to 5, not compressed, with one bytewise sorted
 * index and, if there is a filter, a full bloom filter of format_version 5. Each block's checksum is verified before
 * the block is read for the first time; index, filter and properties when the table is opened: once in a process, however
 * often the file is opened (see [[Verified]]). Any number of threads may read it. After [[close]] nobody may; who does gets
 * an IllegalStateException where a block begins.
 */
private[incremental] final class SstTable private (val file: File, isMapped: Boolean, missing: MissingBytes)
    extends AutoCloseable {
  private val source = new SstFile(file)
  private val metadata = new SstMetadata(source)
  private var mapping: MappedByteBuffer = _
  private var address = 0L
  private var index: SstIndex = _
  private var filter = SstFilter.none

  /** What is known of the file, unless it is not mapped, or not there as a whole. */
  private val known = if (isMapped && missing == null) Verified.of(file) else new Verified

  /** For each data block of a mapped table, whether its checksum was found right. Null when not mapped, or closed. */
  private var verified: Array[Boolean] = _

  try {
    if (isMapped) {
      mapping = source.map()
      address = OffHeap.mapped(mapping)
    }
    source.keepEnd()
    open()
    source.forgetEnd()
  } catch {
    case e: Throwable =>
      close()
      throw e
  }

  private def open(): Unit = {
    metadata.read(address, isSparse, isVerified = known.metadata)
    filter = metadata.filter
    index = new SstIndex(this, source, metadata)
    if (!known.metadata) index.verify()
    if (isMapped) verified = known.blocks(index.blocks)
    if (index.blocks > 0) source.require(compressionOf(block(0)) == SstFormat.uncompressed, "it is compressed")
    known.metadata = isMapped
  }

  private def compressionOf(handle: SstHandle): Byte = source.read(handle.offset + handle.bytes, 1)(0)

  /** Number of data blocks. */
  def blocks: Int = {
    val count = index.blocks
    if (count < 0) throw closed
    count
  }

  private def closed: Throwable = new IllegalStateException(s"$file is closed")

  /** Number of entries, removals too. */
  def entries: Long = metadata.number("rocksdb.num.entries")

  /** The blocks that RocksDB leaves alone whose names begin so, in the order of their names. */
  def blocksNamed(prefix: String): Seq[SstHandle] = metadata.blocksNamed(prefix)

  /** Whether a key with that hash may be in it; one that is not mapped does not tell. */
  def mayContain(hash: Long): Boolean = filter.mayContain(hash)

  /**
   * For readers of verified content that find something impossible there: a page that the operating system dropped and
   * could not read again has anything in it, until the JVM throws its InternalError. Nobody may follow such an offset.
   */
  def changed(at: Long): Nothing =
    source.damaged(if (isMapped) at - address else 0, "what was verified there before is something else now")

  /**
   * The length of a value as cursors tell it, by the kind of its entry: [[Record.removed]] for a removal.
   *
   * @throws UnsupportedSstException if it is neither a value nor a removal, as operands of merges are
   */
  def valueLength(kind: Byte, bytes: Int): Int =
    if (kind == SstFormat.put) bytes
    else if (kind == SstFormat.removal) Record.removed
    else throw new UnsupportedSstException(s"$file: an entry is of kind $kind, neither a value nor a removal")

  /**
   * Where the restarts of a data block are, of which the first is its beginning.
   *
   * @param end where their number is
   * @throws UnsupportedSstException if the block has a hash index, too
   */
  def restartsAt(start: Long, end: Long): Long = {
    val restarts = OffHeap.getInt(null, end)
    if (restarts < 0) throw new UnsupportedSstException(s"$file: its data blocks have hash indexes")
    val at = end - 4L * restarts
    if (restarts == 0 || at < start || OffHeap.getInt(null, at) != 0) changed(start)
    at
  }

  /** Where a data block is. */
  def block(i: Int): SstHandle = index.block(i)

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
    if (index.blocks < 0) throw closed
    else if (!isMapped) content(handle, room)
    else {
      verifyFrom(i, handle, ahead)
      address + handle.offset
    }

  /** The content of a block that is no data block, or of a table that is not mapped. */
  def content(handle: SstHandle, room: SstRoom): Long = room.put(metadata.blocks.read(handle))

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
    while (more && last - first < ahead && last + 1 < index.blocks && !(isSparse && verified(last + 1))) {
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
      missing.fetch(handle.offset, toFetch(last, handle, if (ahead > 0) SstTable.fetchedAheadBytes else SstTable.fetchedBytes))
      content = source.read(handle.offset, length)
    }
    var i = first
    while (i <= last) {
      val one = if (i == first) handle else block(i)
      metadata.blocks.verify(content, (one.offset - handle.offset).toInt, one)
      verified(i) = true
      i += 1
    }
    last
  }

  /**
   * How many bytes from a block on are fetched: those up to a last one, and about as many as that, but none of a block that
   * was verified, nor of the metadata: what came is read there unseen if it is damaged.
   */
  private def toFetch(last: Int, handle: SstHandle, most: Int): Long = {
    var until = last
    var end = endOf(block(last))
    while (until + 1 < index.blocks && !verified(until + 1) && end - handle.offset < most) {
      until += 1
      end = math.max(end, endOf(block(until)))
    }
    end - handle.offset
  }

  private def endOf(handle: SstHandle): Long = handle.offset + handle.bytes + SstFormat.trailerBytes

  /** Whether the content is that of the blocks, and not in part a hole. */
  private def areThere(first: Int, last: Int, handle: SstHandle, content: Array[Byte]): Boolean =
    (first to last).forall { i =>
      val one = if (i == first) handle else block(i)
      metadata.blocks.holds(content, (one.offset - handle.offset).toInt, one)
    }

  /** The first block that can have the key or a greater one; [[blocks]] when none has. */
  def blockOf(key: AnyRef, keyAt: Long, keyLength: Int): Int = {
    if (index.blocks < 0) throw closed
    index.blockOf(key, keyAt, keyLength)
  }

  /** Any number of times; nobody reads it at the same time. */
  def close(): Unit = {
    if (index != null) index.close()
    verified = null
    filter = SstFilter.none
    source.close()
    metadata.close()
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
