package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.nio.ByteBuffer
import java.util.{Arrays, HashMap}

import scala.collection.mutable
import scala.util.Using

import org.apache.spark.sql.execution.streaming.state.incremental.memory.StoreMemory
import org.apache.spark.sql.execution.streaming.state.incremental.sst.{BlockLender, SstTable}

// Rows of lazily restored files are looked up ahead: keys are announced, their missing blocks counted and fetched
// together.

/**
 * Rows of a base of which parts are missing, read before they are asked for. The missing blocks of many keys are fetched
 * in one call, and the rows are taken out of them at once. Most of these blocks are not read again soon: they come into
 * memory. One thread.
 *
 * If the files come whole in the background, blocks are fetched if that is sooner than the files are there. If their
 * pages may be evicted, blocks that were wanted before, not long ago, take room on the disk.
 *
 * Rows and blocks lie in the heap, and count for the budget of the executor. If that has no more memory, no more are read
 * ahead.
 *
 * @param files the sparse files of the base
 * @param memory the budget
 * @param sparseBytes their bytes
 * @param blocksOf passes each block that may have a key to a function
 * @param find returns the value of a key; null if the key is absent
 * @param borrow has `find` take blocks from a lender from now on
 */
private[base] final class RowsAhead(
    files: RestoredFiles,
    memory: StoreMemory,
    sparseBytes: => Long,
    blocksOf: (Array[Byte], (SstTable, Int) => Unit) => Unit,
    find: Array[Byte] => Array[Byte],
    borrow: BlockLender => Unit)
    extends AutoCloseable {
  import RowsAhead._

  private val rows = new HashMap[ByteBuffer, Array[Byte]]
  private var bytes = 0L

  /** Bytes that were taken from the budget for rows, and true if it had no more for rows or blocks. */
  private var takenBytes = 0L
  private var isShort = false
  private var opened: StoredRanges = _

  /** Bytes of blocks that the next round reads, and the rounds so far: the first are small, and tell little. */
  private var roundBytes = firstBlockBytes
  private var rounds = 0

  /** Returns the value of a key that was read ahead, null if that key is absent in the base; None if it was not read. */
  def get(key: Array[Byte]): Option[Array[Byte]] =
    if (rows.isEmpty) None
    else {
      val row = rows.get(ByteBuffer.wrap(key))
      if (row == null) None else if (row eq absent) absentRow else Some(row)
    }

  /**
   * Reads the rows of keys, as many as memory allows. Keys that were read before are left out.
   *
   * @return the number of blocks that were fetched
   * @throws java.io.IOException as the read of a block does
   */
  def read(keys: Iterable[Array[Byte]]): Int = {
    if (bytes > maxBytes) forget()
    isShort = false
    val unread = keys.iterator.filterNot(key => rows.containsKey(ByteBuffer.wrap(key))).toArray
    val each = sortedOnce(unread)
    if (stored == null) 0 else if (files.pageBytes > 0) readPages(each) else readBeforeFiles(each)
  }

  /** Returns the keys in order, each once. */
  private def sortedOnce(keys: Array[Array[Byte]]): Array[Array[Byte]] = {
    Arrays.sort(keys, (a: Array[Byte], b: Array[Byte]) => Arrays.compareUnsigned(a, b))
    var count = 0
    keys.foreach { key =>
      if (count == 0 || !Arrays.equals(keys(count - 1), key)) {
        keys(count) = key
        count += 1
      }
    }
    Arrays.copyOf(keys, count)
  }

  /** Returns the stored files, which stay open until [[close]]; null if there is no way to read them. */
  private def stored: StoredRanges = {
    if (opened == null) opened = files.openStored.map(_()).orNull
    opened
  }

  /** Closes the stored files, and gives the memory back. May be called repeatedly. */
  override def close(): Unit = {
    forget()
    if (opened != null) opened.close()
    opened = null
  }

  /** Returns true if more rows may be read. */
  private def hasRoom: Boolean = bytes <= maxBytes && !isShort

  /** Takes bytes from the budget, or notes that it has no more. */
  private def take(wanted: Long): Boolean = {
    val isTaken = memory.makeRoom(wanted)
    isShort ||= !isTaken
    isTaken
  }

  private def readPages(unread: Array[Array[Byte]]): Int = {
    var room = files.pagesAtOnce
    var from = 0
    var fetched = 0
    while (from < unread.length && hasRoom) {
      Using.resource(new MissingBlocks(room, maxBlockBytes)) { missing =>
        val waiting = mutable.ArrayBuffer.empty[Array[Byte]]
        while (from < unread.length && !missing.isFull && hasRoom) {
          val key = unread(from)
          // Blocks that are there are read before others take their room.
          if (missing.areFor(key)) waiting += key else keep(key, find(key))
          from += 1
        }
        missing.lend(waiting.foreach(key => keep(key, find(key))))
        fetched += missing.count
        room -= missing.diskBytes
      }
    }
    fetched
  }

  /** Reads rows of files that come whole in the background, of which only the missing blocks are fetched. */
  private def readBeforeFiles(unread: Array[Array[Byte]]): Int = {
    val census = censusOf(unread)
    if (census.isSooner(stored.bulkBytesPerSecond)) stored.readingAhead(readRounds(unread, census))
    census.fetched
  }

  /** Returns a census of the blocks of some of the keys, which stand for all. */
  private def censusOf(keys: Array[Array[Byte]]): BlockCensus = {
    val step = math.max(1, keys.length / countedKeys)
    val census = new BlockCensus(sparseBytes, step)
    for (place <- keys.indices by step) blocksOf(keys(place),
      (table, block) =>
        if (block < table.blocks) {
          val (offset, length) = table.rangeOf(block)
          census.add(table, offset, length, table.isMissing(block))
        })
    census
  }

  /** Reads rows, more with each round, until the files would be there sooner. */
  private def readRounds(keys: Array[Array[Byte]], census: BlockCensus): Unit = {
    val areSlow = census.areFilesSlow(stored.bulkBytesPerSecond)
    var from = 0
    var isSooner = true
    while (isSooner && from < keys.length && hasRoom) {
      val begunNanos = System.nanoTime
      Using.resource(new MissingBlocks(0, roundBytes, keepsAgain = areSlow)) { missing =>
        val waiting = mutable.ArrayBuffer.empty[Array[Byte]]
        while (from < keys.length && !missing.isFull) {
          if (missing.areFor(keys(from))) waiting += keys(from)
          from += 1
        }
        missing.lend(waiting.foreach(key => keep(key, find(key))))
        census.addFetched(missing.count, System.nanoTime - begunNanos)
      }
      roundBytes = math.min(roundBytes * 2, maxBlockBytes)
      rounds += 1
      isSooner = rounds < warmRounds || census.isStillSooner(stored.bulkBytesPerSecond)
    }
  }

  /** Keeps a row, if there is memory for it. */
  private def keep(key: Array[Byte], value: Array[Byte]): Unit = {
    val after = bytes + key.length + rowOverhead + (if (value == null) 0 else value.length)
    while (after > takenBytes && take(stepBytes)) takenBytes += stepBytes
    if (after <= takenBytes) {
      rows.put(ByteBuffer.wrap(key), if (value == null) absent else value)
      bytes = after
    }
  }

  /** Takes over the rows of another reader, and their memory. */
  def inherit(from: RowsAhead): Unit = {
    rows.putAll(from.rows)
    bytes += from.bytes
    takenBytes += from.takenBytes
    from.takenBytes = 0
    from.forget()
  }

  /** Forgets all rows. */
  def forget(): Unit = {
    rows.clear()
    bytes = 0
    memory.release(takenBytes)
    takenBytes = 0
  }

  /**
   * Blocks that are not on the disk. They come to memory, but for those that were wanted before.
   *
   * @param room bytes of disk that these may take
   * @param blockBytes bytes of blocks above which no more come to memory
   * @param keepsAgain true if blocks of files without pages, too, come to the disk when they are wanted again
   */
  private final class MissingBlocks(room: Long, blockBytes: Long, keepsAgain: Boolean = false)
      extends BlockLender with AutoCloseable {
    private val looked = mutable.HashMap.empty[SstTable, mutable.HashMap[Int, Boolean]]
    private val forDisk = mutable.ArrayBuffer.empty[(SstTable, Int)]
    private val forMemory = mutable.ArrayBuffer.empty[(SstTable, Int)]
    private val contents = mutable.HashMap.empty[(SstTable, Int), Array[Byte]]
    private var bytes = 0L
    private var takenForBlocks = 0L

    /** Number of the blocks. */
    var count = 0

    /** Bytes of disk that the blocks take. */
    var diskBytes = 0L

    /** Adds the missing blocks of a key; returns true if there are any. */
    def areFor(key: Array[Byte]): Boolean = {
      var any = false
      blocksOf(key, (table, block) => any |= block < table.blocks && isMissing(table, block))
      any
    }

    private def isMissing(table: SstTable, block: Int): Boolean =
      looked.getOrElseUpdate(table, mutable.HashMap.empty).getOrElseUpdate(block, {
          val missing = table.isMissing(block)
          if (missing) {
            count += 1
            add(table, block)
          }
          missing
        })

    private def add(table: SstTable, block: Int): Unit = {
      val pageBytes = table.block(block).bytes + files.pageBytes
      val isKept = keepsAgain && table.wasReadPast(block)
      val isForDisk = isKept || table.want(block) && diskBytes + pageBytes <= room
      if (isForDisk) {
        forDisk += table -> block
        diskBytes += pageBytes
      } else forMemory += table -> block
      if (isKept || !isForDisk) addBytes(table, block) // one that is kept comes to memory if the disk is full
    }

    /** Counts a block, and as many bytes for the rows that will be read in it. */
    private def addBytes(table: SstTable, block: Int): Unit = {
      bytes += table.block(block).bytes
      while (bytes > takenForBlocks && take(2 * stepBytes)) {
        takenForBlocks += stepBytes
        takenBytes += stepBytes
      }
    }

    /** Returns true if no more blocks come with this call. */
    def isFull: Boolean = bytes >= blockBytes || isShort

    override def block(table: SstTable, number: Int): Array[Byte] = contents.getOrElse((table, number), null)

    /** Brings the blocks, and has them there while the body reads rows. */
    def lend(body: => Unit): Unit = {
      try fetchToDisk()
      catch { case _: RemoteRowsException => forMemory ++= forDisk } // the disk may be full
      fetch()
      borrow(this)
      try body
      finally borrow(BlockLender.none)
    }

    /** Gives up the memory of the blocks. */
    override def close(): Unit = memory.release(takenForBlocks)

    private def fetchToDisk(): Unit = if (forDisk.nonEmpty) files.fetch(forDisk.toSeq.map { case (table, block) =>
      val (offset, length) = table.rangeOf(block)
      (table.name, offset, length)
    })

    /** Reads the blocks. If that fails, each is fetched when a row of it is read, and the error is shown there. */
    private def fetch(): Unit = if (forMemory.nonEmpty) {
      val ranges = forMemory.toSeq.map { case (table, block) =>
        val (offset, length) = table.rangeOf(block)
        (table.name, offset, length.toInt)
      }
      stored.tryRead(ranges).foreach(contents ++= forMemory.iterator.zip(_))
    }
  }
}

private object RowsAhead {

  /** Bytes of rows above which no more are read. */
  private val maxBytes = 32L << 20

  /** Bytes of blocks above which no more come into memory at a time. */
  private val maxBlockBytes = 16L << 20

  /** Bytes that are taken from the budget at a time. */
  private val stepBytes = 1L << 20

  /** The same for the first blocks of many, by which the time of the others is told. */
  private val firstBlockBytes = 1L << 20

  /** Number of keys whose blocks are counted. */
  private val countedKeys = 512

  /** Number of rounds that also open files, start threads and warm code up: their time tells nothing. */
  private val warmRounds = 3

  /** Bytes of memory that a row takes besides its key and value. */
  private val rowOverhead = 160

  private val absent = new Array[Byte](0)
  private val absentRow = Some(null)
}

/**
 * A count of the blocks of announced keys, some of which are missing, of files that come whole in the background. It
 * tells if the missing blocks are there sooner than the files: at first by what a request costs, and then by the time
 * that requests take. One thread.
 *
 * @param filesBytes the bytes of all files
 * @param step the number of keys that each key whose blocks are added stands for
 */
private[base] final class BlockCensus(filesBytes: Long, step: Int = 1) {
  import BlockCensus._

  private val lastOffsets = mutable.HashMap.empty[AnyRef, Long]
  private var missing = 0
  private var present = 0
  private var costBytes = 0L
  private var lastBlocks = 0
  private var lastNanos = 0L

  /** Number of the blocks that have come. */
  var fetched = 0

  /**
   * Adds a block; those of a file come in their order. A block may be added again.
   *
   * @param file the file, as an object
   */
  def add(file: AnyRef, offset: Long, length: Long, isMissing: Boolean): Unit = {
    val from = lastOffsets.getOrElse(file, -1L)
    if (offset != from) {
      lastOffsets(file) = offset
      if (isMissing) {
        val gap = if (from < 0) requestBytes else math.max(0, (offset - from) / step - length)
        missing += step
        costBytes += step * (length + math.min(gap, requestBytes))
      } else present += step
    }
  }

  /** Adds missing blocks that have come together, and the time that they took. */
  def addFetched(blocks: Int, nanos: Long): Unit = {
    fetched += blocks
    lastBlocks = blocks
    lastNanos = nanos
  }

  /** Bytes that are missing of all files, if as large a share of them is missing as of the blocks. */
  private def leftBytes: Double = filesBytes.toDouble * missing / math.max(1, missing + present)

  /**
   * Returns true if the missing blocks are there much sooner than the files.
   *
   * @param bytesPerSecond the speed of the files; None if it is not known
   */
  def isSooner(bytesPerSecond: Option[Long]): Boolean =
    missing > 1 && {
      val speed = bytesPerSecond.fold(usualSpeed)(_.toDouble)
      2 * costBytes / math.max(speed, usualSpeed) < leftBytes / speed
    }

  /** Returns true if the files come so slowly, or not at all, that their blocks are read by more than a few batches. */
  def areFilesSlow(bytesPerSecond: Option[Long]): Boolean = bytesPerSecond.exists(_ < usualSpeed)

  /** Returns true if the blocks that have not come yet are there sooner, by the time that the last ones took. */
  def isStillSooner(bytesPerSecond: Option[Long]): Boolean = lastBlocks == 0 || bytesPerSecond.forall(speed =>
    lastNanos / 1e9 * (missing - fetched) / lastBlocks < leftBytes / speed)
}

private object BlockCensus {

  /** Bytes of a file that come in the time that a request takes, as one of many. */
  private val requestBytes = 64L << 10

  /**
   * Bytes a second with which files come at least if nothing but the machine and the storage limits them. Where these are
   * slower or faster, requests are so, too.
   */
  private val usualSpeed = 128.0 * (1 << 20)
}
