package org.apache.spark.sql.execution.streaming.state.incremental.memory

import java.lang.ref.Cleaner
import java.nio.ByteBuffer
import java.util.Arrays

import scala.collection.mutable

import org.apache.spark.unsafe.Platform

/**
 * Memory outside the heap was used without being allocated, or was freed twice. The cause, if known, is the place that
 * freed the memory, and its cause the place that allocated it.
 */
private[memory] final class MemoryFault(message: String, cause: Throwable) extends Error(message, cause)

/**
 * A register of all pieces of memory outside the heap, for tests ([[OffHeap]]): it knows who may read and write where.
 * New memory is filled with one pattern and freed memory with another. Freed memory is kept for a while, so that nobody
 * else gets it, and must still hold its pattern when it is given back. Any number of threads.
 */
private[memory] object MemoryGuard {
  private val freshByte: Byte = 0x5a
  private val freedByte: Byte = -0x23
  private val freedWord: Long = (freedByte & 0xffL) * 0x0101010101010101L
  private val maxKeptBytes = 16L << 20
  private val maxKept = 1 << 11
  private val cleaner = Cleaner.create()
  private val collectedAway = new Throwable("freed by the garbage collector")

  private final class Piece(val start: Long, val bytes: Long, val isCollected: Boolean) {
    val allocated = new Throwable(s"allocated here, $bytes bytes")
    @volatile var freed: Throwable = _
    def end: Long = start + bytes
    def holds(at: Long, length: Long): Boolean = at >= start && length >= 0 && at + length <= end
    def touches(at: Long): Boolean = at >= start && at < end
  }

  /** Pieces that do not overlap, ordered by address. Immutable, so that a look needs no lock. */
  private final class Pieces(val sorted: Array[Piece], starts: Array[Long]) {

    /** Returns the index of the last piece that begins at or before an address, or -1. */
    def before(at: Long): Int = {
      val position = Arrays.binarySearch(starts, at)
      if (position >= 0) position else -position - 2
    }

    /** Returns the indices of the pieces that overlap with a piece, or an empty range at the index where it belongs. */
    def overlapping(piece: Piece): Range = {
      val last = before(piece.start)
      val from = if (last >= 0 && sorted(last).end > piece.start) last else last + 1
      var until = from
      while (until < sorted.length && sorted(until).start < piece.end) until += 1
      from until until
    }

    /** Returns the pieces with others in place of some. */
    def patched(places: Range, others: Array[Piece]): Pieces = {
      val pieces = new Array[Piece](sorted.length - places.length + others.length)
      val madeStarts = new Array[Long](pieces.length)
      val after = places.start + others.length
      System.arraycopy(sorted, 0, pieces, 0, places.start)
      System.arraycopy(starts, 0, madeStarts, 0, places.start)
      System.arraycopy(others, 0, pieces, places.start, others.length)
      others.indices.foreach(i => madeStarts(places.start + i) = others(i).start)
      System.arraycopy(sorted, places.end, pieces, after, sorted.length - places.end)
      System.arraycopy(starts, places.end, madeStarts, after, starts.length - places.end)
      new Pieces(pieces, madeStarts)
    }
  }

  /** Called before memory is allocated or copied. Tests let it throw. */
  @volatile var beforeUse: () => Unit = () => ()

  /** Called before a local file is opened, read, written or mapped. Tests let it throw. */
  @volatile var beforeFileUse: () => Unit = () => ()

  @volatile private var live = new Pieces(Array.empty, Array.empty)
  private val freed = mutable.ArrayDeque.empty[Piece]
  private var keptBytes = 0L

  /** The pieces of recent accesses, by address. */
  private val hints = new Array[Piece](1 << 10)

  /** Freed pieces, with the place that freed each. Their memory may have been allocated again. */
  private val gone = mutable.ArrayDeque.empty[Piece]

  /** Throws a [[MemoryFault]] unless all of these bytes may be used. */
  def access(o: AnyRef, at: Long, bytes: Long): Unit = o match {
    case null => if (bytes != 0) accessOffHeap(at, bytes)
    case array: Array[Byte] => accessArray(at - Platform.BYTE_ARRAY_OFFSET, bytes, array.length.toLong)
    case array: Array[Long] => accessArray(at - Platform.LONG_ARRAY_OFFSET, bytes, array.length * 8L)
    case _ => ()
  }

  private def accessArray(from: Long, bytes: Long, length: Long): Unit =
    if (from < 0 || bytes < 0 || from + bytes > length) {
      throw new MemoryFault(s"$bytes bytes at $from of an array of $length bytes", null)
    }

  private def accessOffHeap(at: Long, bytes: Long): Unit = {
    val hint = ((at >>> 12) & (hints.length - 1)).toInt
    val piece = hints(hint)
    if (piece == null || piece.freed != null || !piece.holds(at, bytes)) {
      val now = live
      val i = now.before(at)
      if (i < 0 || !now.sorted(i).holds(at, bytes)) fault(at, bytes)
      hints(hint) = now.sorted(i)
    }
  }

  private def fault(at: Long, bytes: Long): Nothing = synchronized {
    val i = live.before(at)
    val where = s"$bytes bytes at address $at"
    if (i >= 0 && live.sorted(i).touches(at)) {
      val piece = live.sorted(i)
      throw new MemoryFault(s"$where reach beyond the ${piece.bytes} bytes from ${piece.start} on", piece.allocated)
    }
    (freed.reverseIterator ++ gone.reverseIterator).find(_.touches(at)) match {
      case Some(piece) =>
        throw new MemoryFault(s"$where were freed, ${piece.bytes} from ${piece.start} on", piece.freed)
      case None => throw new MemoryFault(s"$where belong to nobody", null)
    }
  }

  /** Registers new memory and fills it. */
  def allocated(address: Long, bytes: Long): Unit = {
    Platform.setMemory(address, freshByte, bytes)
    add(new Piece(address, bytes, isCollected = false))
  }

  /** Registers a mapping. */
  def mapped(address: Long, bytes: Long): Unit = add(new Piece(address, bytes, isCollected = false))

  /** Registers a buffer. The garbage collector removes it some time after its last use. */
  def collected(buffer: ByteBuffer): Unit = {
    val piece = new Piece(OffHeap.addressOf(buffer), buffer.capacity, isCollected = true)
    add(piece)
    cleaner.register(buffer, () => forget(piece))
  }

  private def forget(piece: Piece): Unit = synchronized {
    if (piece.freed == null) {
      piece.freed = collectedAway
      remove(live.sorted.indexOf(piece))
    }
  }

  private def remove(place: Int): Unit = live = live.patched(place until place + 1, Array.empty)

  private def add(piece: Piece): Unit = synchronized {
    // The memory of a collected buffer may be allocated again before the collector reports the buffer.
    val places = live.overlapping(piece)
    val others = places.map(live.sorted(_))
    if (others.exists(!_.isCollected)) {
      throw new MemoryFault(s"${piece.bytes} bytes at ${piece.start} were given to two", piece.allocated)
    }
    others.foreach(_.freed = collectedAway)
    live = live.patched(places, Array(piece))
  }

  /** Removes the live piece that begins at an address, or throws. */
  private def take(address: Long): Piece = {
    val i = live.before(address)
    if (i < 0 || live.sorted(i).start != address) freedAgain(address)
    val piece = live.sorted(i)
    piece.freed = new Throwable("freed here", piece.allocated)
    remove(i)
    piece
  }

  /** Throws a [[MemoryFault]] that names the place which freed the memory before, if that is known. */
  def freedAgain(address: Long): Nothing = synchronized {
    val before = (freed.reverseIterator ++ gone.reverseIterator).find(_.start == address)
    val state = before.fold("it is nobody's")(_ => "it was before")
    throw new MemoryFault(s"The memory at $address is given back, but $state", before.map(_.freed).orNull)
  }

  /** Frees memory: it is filled, kept for a while, and then given back. */
  def free(address: Long): Unit = synchronized {
    val piece = take(address)
    Platform.setMemory(address, freedByte, piece.bytes)
    freed.append(piece)
    keptBytes += piece.bytes
    while (keptBytes > maxKeptBytes || freed.length > maxKept) release()
  }

  private def release(): Unit = {
    val oldest = freed.removeHead()
    keptBytes -= oldest.bytes
    remember(oldest)
    var i = 0L
    while (i + 8 <= oldest.bytes && Platform.getLong(null, oldest.start + i) == freedWord) i += 8
    while (i < oldest.bytes) {
      if (Platform.getByte(null, oldest.start + i) != freedByte) {
        throw new MemoryFault(s"Byte $i of memory that was freed before has changed", oldest.freed)
      }
      i += 1
    }
    Platform.freeMemory(oldest.start)
  }

  /** Removes a mapping. */
  def unmapped(address: Long): Unit = synchronized(remember(take(address)))

  private def remember(piece: Piece): Unit = {
    gone.append(piece)
    if (gone.length > maxKept) gone.removeHead()
  }
}
