package org.apache.spark.sql.execution.streaming.state.incremental.sst

import java.io.{File, IOException, RandomAccessFile}
import java.nio.MappedByteBuffer
import java.nio.channels.FileChannel

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{Bytes, OffHeap, Record}
import org.apache.spark.storage.StorageUtils

// An SST is opened, its blocks are fetched and verified when they are first read, single keys are looked up, and reads
// of pages are noted for the agent.

/**
 * An SST, read without RocksDB: a block-based table of format_version 2 to 5 with one bytewise sorted index and a full
 * bloom filter of format_version 5, or none. Blocks may be compressed. Index, filter and properties are verified when
 * the table is opened, and each block before it is read for the first time: once in a process, however often the file is
 * opened ([[Verified]]). A block is read in place if it is mapped as a whole, stays, and is not compressed. Any other is
 * copied and verified whenever it is read, so that nobody has to know which pages of a file were evicted. Any number of
 * threads may read a table. After [[close]] a read throws IllegalStateException where a block begins.
 */
private[incremental] final class SstTable private (val file: File, pieceBytes: Int, missing: MissingBytes)
    extends AutoCloseable {
  private val source = new SstFile(file)
  private val metadata = new SstMetadata(source)
  private var mapping: SstMapping = _
  private var index: SstIndex = _
  private var filter = SstFilter.none

  /** Notes which pages are read, for a file of which pages are evicted; else null. */
  private var uses: PageUses = _

  /** The verified parts of the file; empty for a table that is not mapped or not complete. */
  private val fileMarks = if (pieceBytes > 0 && missing == null) Verified.of(file) else new Verified

  /** For each data block, true if its checksum was found right. Null after [[close]]. */
  private var verified: Array[Boolean] = _

  /** For each data block, true if it was read past the disk. Threads that overwrite the notes of others do no harm. */
  private var readPast: Array[Boolean] = _

  try {
    if (pieceBytes > 0) mapping = source.map(pieceBytes)
    if (missing != null) uses = missing.openUses()
    source.keepEnd()
    open()
    source.forgetEnd()
  } catch {
    case e: Throwable =>
      close()
      throw e
  }

  private def open(): Unit = {
    metadata.read(mapping, isVerified = fileMarks.metadata)
    filter = metadata.filter
    index = new SstIndex(this, source, metadata)
    if (!fileMarks.metadata) index.verify()
    verified = fileMarks.blocks(index.blocks)
    fileMarks.metadata = true
  }

  /** Mappings that the table takes: of the file, at least one is counted, and of the notes of the pages that are read. */
  val mappings: Int = (if (mapping == null) 1 else mapping.count) + (if (uses == null) 0 else 1)

  /** Bytes of memory outside the heap: a compressed index, and the metadata of a table that is not mapped. */
  val bytes: Long = metadata.copiedBytes

  /**
   * Number of data blocks.
   *
   * @throws IllegalStateException after [[close]]
   */
  def blocks: Int = {
    val count = index.blocks
    if (count < 0) throw closed
    count
  }

  private def closed: Throwable = new IllegalStateException(s"$file is closed")

  /** Number of entries, removals included. */
  def entries: Long = metadata.number("rocksdb.num.entries")

  /** Returns the blocks that RocksDB ignores and whose names begin with a prefix, in the order of their names. */
  def blocksNamed(prefix: String): Seq[SstHandle] = metadata.blocksNamed(prefix)

  /** Returns false if no key of the table has that hash; true for every hash if the table is not mapped. */
  def mayContain(hash: Long): Boolean = filter.mayContain(hash) || {
    checkWhole()
    false
  }

  /**
   * Throws a [[DamagedSstException]] if a mapped file was cut off since it was opened: what was read of it may have been
   * zeros, which a filter, an index or a value may have, too. Called after a read.
   */
  def checkWhole(): Unit = if (mapping != null && !mapping.isWhole) {
    source.damaged(file.length, "the file was cut off there while it was open")
  }

  /**
   * Throws a [[DamagedSstException]] for verified content that is impossible now. A page that the operating system
   * dropped and cannot read again contains anything, until the JVM throws its InternalError. Readers must not follow an
   * offset in it.
   */
  def changed(at: Long): Nothing =
    source.damaged(if (mapping == null) 0 else mapping.placeOf(at), "content that was verified before has changed")

  /**
   * Returns the length of a value as cursors show it, by the kind of its entry: [[Record.removed]] for a removal.
   *
   * @throws UnsupportedSstException if the entry is neither a value nor a removal, as merge operands are
   */
  def valueLength(kind: Byte, bytes: Int): Int =
    if (kind == SstFormat.put) bytes
    else if (kind == SstFormat.removal) Record.removed
    else throw new UnsupportedSstException(s"$file: an entry is of kind $kind, neither a value nor a removal")

  /**
   * Returns the address of a data block's restarts, the first of which is the block's beginning.
   *
   * @param start address of the block
   * @param end address of the number of restarts
   * @throws UnsupportedSstException if the block also has a hash index
   */
  def restartsAt(start: Long, end: Long): Long = {
    val restarts = OffHeap.getInt(null, end)
    if (restarts < 0) throw new UnsupportedSstException(s"$file: its data blocks have hash indexes")
    val at = end - 4L * restarts
    if (restarts == 0 || at < start || OffHeap.getInt(null, at) != 0) changed(start)
    at
  }

  /** Returns the place of the i-th data block. */
  def block(i: Int): SstHandle = index.block(i)

  /** Returns true if parts of the file may be missing. */
  def isSparse: Boolean = missing != null

  /** Name of a sparse file, as [[MissingBytes]] has it. */
  def name: String = missing.name

  /** Returns offset and length of a data block with its trailer. */
  def rangeOf(i: Int): (Long, Long) = {
    val handle = block(i)
    (handle.offset, handle.length.toLong)
  }

  /** Returns true if a data block of a sparse file is not there just now. */
  def isMissing(i: Int): Boolean = !isVerified(i) && {
    val handle = block(i)
    val content = source.read(handle.offset, handle.length)
    val isThere = metadata.blocks.holds(content, 0, handle)
    if (isThere && uses == null) verified(i) = true
    !isThere
  }

  /**
   * Notes that a data block was asked for that is not there.
   *
   * @return true if it was asked for before, not long ago
   */
  def want(i: Int): Boolean = uses != null && uses.want(block(i))

  /**
   * Notes that a data block, of a file that comes whole in the background, was read past the disk.
   *
   * @return true if that was noted before
   */
  def wasReadPast(i: Int): Boolean = {
    if (readPast == null) readPast = new Array[Boolean](blocks)
    val before = readPast(i)
    readPast(i) = true
    before
  }

  /** Returns true if a data block has been read and verified, and stays. */
  def isVerified(i: Int): Boolean = {
    val marks = verified
    marks != null && marks(i)
  }

  /**
   * Shows the content of a data block, verified, in a room.
   *
   * @param room memory of the reader, for a block that is not read in place; it may lend blocks that are not there
   * @param ahead number of blocks after this one that the reader will want, too
   * @throws DamagedSstException if the block is damaged
   */
  def read(i: Int, room: SstRoom, ahead: Int): Unit = {
    val marks = verified
    if (marks == null) throw closed
    val handle = block(i)
    val at = if (mapping == null || uses != null) 0 else mapping.at(handle)
    if (at == 0) copy(i, handle, room, ahead)
    else if (marks(i) || !isLent(i, handle, room)) {
      if (!marks(i)) verifyFrom(i, handle, ahead)
      metadata.blocks.show(at, handle, room)
    }
  }

  /** Takes a block that is not in the file out of memory. Returns false if it is not there either. */
  private def isLent(i: Int, handle: SstHandle, room: SstRoom): Boolean = {
    val lent = if (missing == null) null else room.lent(this, i)
    val holds = lent != null && metadata.blocks.holds(lent, 0, handle)
    if (holds) metadata.blocks.put(lent, handle, room)
    holds
  }

  /**
   * Copies a block that is not read in place, and fetches it if it is not there. It may be evicted again between its
   * fetch and its read.
   */
  private def copy(i: Int, handle: SstHandle, room: SstRoom, ahead: Int): Unit = {
    var lent = room.lent(this, i)
    var content = if (lent == null) source.read(handle.offset, handle.length) else lent
    def isMissing: Boolean = missing != null && !metadata.blocks.holds(content, 0, handle)
    def fromStorage(bytes: Int): Unit = {
      lent = readAhead(i, handle, room, bytes)
      if (lent != null) content = lent
    }
    if (ahead > 0 && uses != null && isMissing) fromStorage(SstTable.evictedAheadBytes)
    var tries = 0
    while (tries < SstTable.fetches && isMissing) {
      try {
        missing.fetch(handle.offset, toFetch(i, handle, ahead))
        content = source.read(handle.offset, handle.length)
      } catch {
        case e: IOException => // the disk may be full
          fromStorage(0)
          if (lent == null || isMissing) throw e
      }
      tries += 1
    }
    metadata.blocks.verify(content, 0, handle)
    // A scan reads a block once: it takes no room from what look-ups read.
    if (uses == null || (content eq lent)) ()
    else if (ahead == 0) uses.note(handle)
    else if (tries > 0) uses.forget(handle)
    metadata.blocks.put(content, handle, room)
  }

  /** Reads a block, and blocks after it, into memory. Returns the first; null if that is not possible. */
  private def readAhead(i: Int, handle: SstHandle, room: SstRoom, bytes: Int): Array[Byte] = {
    val window = missing.read(handle.offset, Math.toIntExact(bytesFrom(i, handle, bytes)))
    if (window != null) room.borrow { (table, number) =>
      val (offset, length) = if (table eq this) rangeOf(number) else (-1L, 0L)
      val from = offset - handle.offset
      if (offset < 0 || from < 0 || from + length > window.length) null
      else java.util.Arrays.copyOfRange(window, from.toInt, (from + length).toInt)
    }
    if (window == null) null else room.lent(this, i)
  }

  /** Shows the content of a block of [[blocksNamed]] in a room. */
  def read(handle: SstHandle, room: SstRoom): Unit = metadata.blocks.put(metadata.blocks.read(handle), handle, room)

  /**
   * Verifies unread data blocks from a block on, as many as are read at once.
   *
   * @return the block to go on with, and the number of bytes read; None if all blocks are verified
   * @throws DamagedSstException if a block is damaged
   */
  def verifyUnread(from: Int): Option[(Int, Long)] =
    (from until blocks).find(!isVerified(_)).map { first =>
      val start = block(first)
      val last = verifyFrom(first, start, ahead = Int.MaxValue)
      (last + 1, block(last).end - start.offset)
    }

  /** Verifies a block and some after it in one read, those of them that are there. Returns the last of them. */
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
    val length = Math.toIntExact(end.end - handle.offset)
    var content = source.read(handle.offset, length)
    def holds(part: SstHandle): Boolean = metadata.blocks.holds(content, (part.offset - handle.offset).toInt, part)
    if (missing != null && !holds(handle)) {
      missing.fetch(handle.offset, toFetch(first, handle, ahead))
      content = source.read(handle.offset, length)
    }
    var i = first
    while (i <= last) {
      val part = if (i == first) handle else block(i)
      if (i > first && isSparse && !holds(part)) last = i - 1
      else {
        metadata.blocks.verify(content, (part.offset - handle.offset).toInt, part)
        verified(i) = true
        i += 1
      }
    }
    last
  }

  /** Returns the number of bytes to fetch from a missing block on. */
  private def toFetch(i: Int, handle: SstHandle, ahead: Int): Long = bytesFrom(i, handle,
    if (uses != null) { if (ahead > 0) SstTable.evictedAheadBytes else 0 }
    else if (ahead > 0) SstTable.fetchedAheadBytes
    else SstTable.fetchedBytes)

  /**
   * Returns the number of bytes from a block on, of blocks up to about `maxBytes` bytes. The range ends before a block
   * that was verified and before the metadata: these are read without another check, and a damaged answer would
   * overwrite them.
   */
  private def bytesFrom(i: Int, handle: SstHandle, maxBytes: Int): Long = {
    var until = i
    var end = handle.end
    while (until + 1 < index.blocks && !verified(until + 1) && end - handle.offset < maxBytes) {
      until += 1
      end = math.max(end, block(until).end)
    }
    end - handle.offset
  }

  /**
   * Returns the first block that can hold the key or a greater one, or [[blocks]] if there is none.
   *
   * @throws IllegalStateException after [[close]]
   */
  def blockOf(key: AnyRef, keyAt: Long, keyLength: Int): Int = {
    if (index.blocks < 0) throw closed
    index.blockOf(key, keyAt, keyLength)
  }

  /** Closes the table. No thread may read it meanwhile. May be called repeatedly. */
  def close(): Unit = {
    if (index != null) index.close()
    if (uses != null) uses.close()
    verified = null
    filter = SstFilter.none
    source.close()
    metadata.close()
    if (mapping != null) mapping.close()
    mapping = null
  }
}

private[incremental] object SstTable {
  private val verifiedAtOnceBytes = 64 << 10

  /** Bytes that a fetch of a sparse file brings at least: a request for fewer takes as long. */
  val fetchedBytes: Int = 128 << 10
  private val fetchedAheadBytes = 2 << 20

  /** Bytes that a scan reads ahead of a file whose pages are evicted, into memory if that is possible. */
  private val evictedAheadBytes = 256 << 10

  /** Number of fetches after which a block that is still wrong is damaged, and not evicted just now. */
  private val fetches = 8

  /**
   * Opens a table whose blocks are read in place, from a mapping of the file, if they can be.
   *
   * @param missing fetches parts of the file that are missing; null if the file is complete
   * @param pieceBytes the longest mapping: a longer file takes several, and blocks across their ends are copied
   * @throws UnsupportedSstException if the file is of another kind than described above
   * @throws DamagedSstException if the file is not an SST or its metadata is damaged
   * @throws IOException if the file cannot be read or mapped
   */
  def map(file: File, missing: MissingBytes = null, pieceBytes: Int = 1 << 30): SstTable =
    new SstTable(file, pieceBytes, missing)

  /**
   * Opens a table that is not mapped: its data blocks are read into memory one at a time.
   *
   * @throws IOException as [[map]] does
   */
  def read(file: File, missing: MissingBytes = null): SstTable = new SstTable(file, pieceBytes = 0, missing)
}

/** Fetches bytes that a local file lacks, and writes them into it. Any number of threads. */
private[incremental] trait MissingBytes {

  /** Name of the file, by which many files' bytes are fetched together. */
  def name: String = ""

  /**
   * Fetches `length` bytes from an offset on, or those up to the end of the file if it is shorter.
   *
   * @throws java.io.IOException if they cannot be fetched
   */
  def fetch(offset: Long, length: Long): Unit

  /**
   * Reads bytes from an offset on into memory, and not to their places.
   *
   * @return the bytes, which may be wrong; null if only [[fetch]] may bring them
   * @throws java.io.IOException if the thread is interrupted
   */
  def read(offset: Long, length: Int): Array[Byte] = null

  /**
   * Returns where to note the pages that are read, for a file of which any page of data blocks may be evicted at any
   * moment; null for a file that keeps what was fetched. The caller closes it.
   *
   * @throws java.io.IOException if the notes cannot be opened
   */
  def openUses(): PageUses = null
}

/**
 * Looks up single keys in mapped SSTs. The value that was found lies in the mapped file, or until the next look-up in
 * memory of the reader. One thread.
 */
private[incremental] final class SstPointReader extends AutoCloseable {
  private val room = new SstRoom
  private val entries = new SstEntries(room)
  private val entry = entries.entry

  var valueAddress = 0L

  /** Length of the value in bytes; [[Record.removed]] if the entry removes the key. */
  var valueLength = 0

  /**
   * Looks for an entry of a key, and sets address and length of its value.
   *
   * @return true if the file has an entry of the key
   * @throws java.io.IOException if the file cannot be read or is damaged
   */
  def find(table: SstTable, key: Array[Byte]): Boolean = {
    val block = table.blockOf(key, OffHeap.arrayBase, key.length)
    val isThere = block < table.blocks && {
      entries.read(table, block, 0)
      entries.seek(key)
      scan(table, key, entries.end)
    }
    table.checkWhole()
    isThere
  }

  /**
   * Searches entries from a restart on. All entries before the key are less than it, so the number of bytes that an
   * entry shares with the one before decides about most of them without a look at their bytes. If the shared bytes
   * reach into the footer of the entry before, a cursor decides.
   */
  private def scan(table: SstTable, key: Array[Byte], end: Long): Boolean = {
    var common = 0
    var lengthBefore = 0
    while (entry.at < end) {
      val shared = entry.length()
      val rest = entry.length() - SstFormat.keyFooterBytes
      val bytes = entry.length()
      val at = entry.at
      if (shared > lengthBefore || rest < 0) return findByCursor(table, key)
      val next = at + rest + SstFormat.keyFooterBytes + bytes
      if (shared < 0 || bytes < 0 || next > end) table.changed(at)
      entry.at = next
      lengthBefore = shared + rest
      if (shared < common) return false
      if (shared == common) {
        val more = Bytes.common(key, common, at, rest)
        common += more
        if (more == rest && common == key.length) {
          valueAddress = at + rest + SstFormat.keyFooterBytes
          valueLength = table.valueLength(OffHeap.getByte(null, at + rest), bytes)
          return true
        }
        if (common == key.length) return false
        if (more < rest && (OffHeap.getByte(null, at + more) & 0xff) > (key(common) & 0xff)) return false
      }
    }
    false
  }

  private def findByCursor(table: SstTable, key: Array[Byte]): Boolean = {
    val cursor = new SstCursor(table, room)
    try {
      cursor.seek(key)
      valueAddress = cursor.valueAddress
      valueLength = cursor.valueLength
      cursor.valid && Bytes.compare(key, cursor.keyAddress, cursor.keyLength) == 0
    } finally cursor.close()
  }

  /** Takes blocks of sparse tables from memory from now on, as far as `lender` has them. */
  def borrow(lender: BlockLender): Unit = room.borrow(lender)

  /** Frees the memory. May be called repeatedly. */
  def close(): Unit = room.free()
}

/**
 * A file with a byte for each page of another file, which is 1 if the page was read since the agent looked, and 2 if it
 * was wanted and not there. The agent evicts pages with 0 first. Any number of threads; a note that is lost does no harm.
 *
 * @param pageBytes length of a page, a power of two
 * @throws java.io.IOException if the file does not exist or cannot be mapped
 */
private[incremental] final class PageUses(file: File, pageBytes: Int) extends AutoCloseable {
  private val shift = Integer.numberOfTrailingZeros(pageBytes)
  private var mapping: MappedByteBuffer = {
    OffHeap.fileUse()
    if (!file.exists) throw new IOException(s"$file is missing, which notes the pages that are read")
    val access = new RandomAccessFile(file, "rw")
    try {
      OffHeap.fileUse()
      access.getChannel.map(FileChannel.MapMode.READ_WRITE, 0, access.length)
    } finally access.close()
  }

  /** Notes that a block was read. Pages that the file does not have are never evicted. */
  def note(block: SstHandle): Unit = put(block, PageUses.used)

  /** Notes that a block is not needed any more. */
  def forget(block: SstHandle): Unit = put(block, PageUses.unused)

  /**
   * Notes that a block is wanted that is not there.
   *
   * @return true if all of it was wanted before, or read, since the agent looked
   */
  def want(block: SstHandle): Boolean = put(block, PageUses.wantedPage, onlyUnused = true)

  /** Notes a use of pages. Returns false if any of them was unused. */
  private def put(block: SstHandle, use: Byte, onlyUnused: Boolean = false): Boolean = {
    var page = block.offset >>> shift
    val last = math.min((block.end - 1) >>> shift, mapping.capacity - 1L)
    var wereUsed = true
    while (page <= last) {
      val isUnused = mapping.get(page.toInt) == PageUses.unused
      if (isUnused) wereUsed = false
      if (isUnused || !onlyUnused) mapping.put(page.toInt, use)
      page += 1
    }
    wereUsed
  }

  /** Closes the file. No thread may note anything meanwhile. May be called repeatedly. */
  def close(): Unit = {
    if (mapping != null) StorageUtils.dispose(mapping)
    mapping = null
  }
}

private object PageUses {
  private val used: Byte = 1
  private val unused: Byte = 0
  private val wantedPage: Byte = 2
}
