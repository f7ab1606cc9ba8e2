package org.apache.spark.sql.execution.streaming.state.incremental.recent

import java.io.File
import java.lang.invoke.VarHandle
import java.util.concurrent.atomic.AtomicInteger

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{ArenaWalk, OffHeap, Record, Slots, StoreMemory}

/**
 * Generations whose records are in one index, oldest first. Shared by counted references: the store's own and
 * one of every open transaction; the memory goes with the last. It changes only under the store's lock, and
 * only while no transaction but the one that asks reads it.
 *
 * Memory comes back as in a log-structured file system: the oldest of what the base holds too is dropped
 * piece by piece, and those of its records that are still the newest of their keys move to a new piece, whose
 * turn comes again. So a state that fits stays in memory whole, however often its keys change.
 */
private[incremental] final class IndexedGenerations(memory: StoreMemory, spillDirectory: File) {
  private val references = new AtomicInteger(1)

  /** Takes the values of [[RecentIndex.prefetch]], so that the compiler does not remove its reads. */
  private var prefetched = 0

  /** Whether the marks of records say what this index says; else they are another's, which has them too. */
  @volatile private var marksHold = true
  val index = new RecentIndex(memory, spillDirectory)

  /** The same records in key order and by prefix. */
  val ordered = new OrderedIndex(this, memory, spillDirectory)
  val generations = mutable.ArrayDeque.empty[Generation]
  private val pieces = mutable.ArrayDeque.empty[EvictableSegment]
  private var lastSequence = 0L

  /**
   * The records that the newest generation took the place of, in the order of its slots, 0 for none; null once that
   * generation cannot be taken out any more. It keeps its table so long.
   */
  private var replaced: Slots = _

  /** How many of the oldest generations the base holds too. */
  var merged = 0

  def retain(): Unit = references.incrementAndGet()

  def release(): Unit = if (references.decrementAndGet() == 0) {
    forgetReplaced()
    index.free()
    ordered.free()
    generations.foreach(_.release())
    generations.clear()
    merged = 0
    pieces.foreach(_.free())
    pieces.clear()
  }

  /** Whether this many others than the store itself read it. */
  def readers: Int = references.get - 1

  /** Bytes that the index and the list of replaced records take for that generation. */
  private[recent] def bytesFor(generation: Generation): Long =
    index.bytesFor(generation.records) + (generation.records << IndexedGenerations.replacedShift)

  /**
   * Adds the next generation, whose reference becomes this one's. The one before cannot be taken out any more. If it
   * throws because there is no memory, the index has not changed.
   */
  private[recent] def publish(generation: Generation): Unit = {
    keepNewest(isEvicting = false)
    index.reserve(generation.records)
    replaced = Slots.allocate(generation.records, IndexedGenerations.replacedShift, memory, spillDirectory)
    val put = putAll(generation)
    if (put != generation.records) {
      throw new InconsistentStateException(s"${generation.version} has $put records in memory, and had ${generation.records}")
    }
    append(generation)
  }

  /** The newest generation, while it can be taken out and is not part of the orders. */
  private[recent] def newestChanges: Option[Generation] = if (replaced == null) None else generations.lastOption

  /**
   * Makes the newest generation one that stays.
   *
   * @param isEvicting whether no memory may be taken: the orders are made anew by the next scans then
   */
  private def keepNewest(isEvicting: Boolean): Unit = {
    newestChanges.foreach { newest =>
      if (isEvicting) ordered.forgetOrders() else ordered.keepNewest(newest)
      if (!newest.isShared) { // else a reader looks for its keys in its table, and goes through its order
        newest.forgetOrder()
        newest.memtable.freeTable()
      }
    }
    forgetReplaced()
  }

  private def forgetReplaced(): Unit = if (replaced != null) {
    replaced.free()
    replaced = null
  }

  /** Whether [[takeOutNewest]] may be called: no base has the newest generation, and none came after it. */
  private[recent] def canTakeOutNewest: Boolean = replaced != null && merged < generations.size

  /**
   * Undoes [[publish]] of the newest generation; its reference is the caller's. Rows that it replaced and that were
   * evicted since are in the base.
   */
  private[recent] def takeOutNewest(): Generation = {
    val newest = generations.last
    var i = 0L
    newest.memtable.foreachRecord { record =>
      val old = OffHeap.getLong(null, replaced.address(i))
      index.takeBack(record, old)
      ordered.takenBack(record, old)
      i += 1
    }
    ordered.takeOutNewest()
    forgetReplaced()
    generations.removeLast()
  }

  /** Forgets the replaced records of a place that goes. */
  private def forgetReplacedIn(holds: Long => Boolean): Unit = if (replaced != null) {
    var i = 0L
    while (i < replaced.capacity) {
      if (holds(OffHeap.getLong(null, replaced.address(i)))) OffHeap.putLong(null, replaced.address(i), 0)
      i += 1
    }
  }

  private def append(generation: Generation): Unit = {
    generation.sequence = nextSequence()
    generations.append(generation)
  }

  private def nextSequence(): Long = {
    lastSequence += 1
    lastSequence
  }

  /** The newest record of each key, removed ones too. */
  private[recent] def foreachNewest(use: Long => Unit): Unit = {
    var slot = 0L
    while (slot < index.size) {
      val record = index.at(slot)
      if (record != 0) use(record)
      slot += 1
    }
  }

  /**
   * Throws when memory has more keys than there are at the newest version, or, where there is no base, fewer.
   *
   * @param keys number of keys at that version
   */
  def check(keys: Long, hasBase: Boolean): Unit = {
    val present = index.present
    if (present > keys || !hasBase && present < keys || present < 0 || pieces.isEmpty && index.count > records) {
      val last = generations.lastOption.map(_.version)
      throw new InconsistentStateException(
        s"Memory has $present keys of ${index.count} in $records records up to $last, where there are $keys, base: $hasBase")
    }
  }

  /** Bytes of the index and of the order. */
  def indexBytes: Long = index.bytes + ordered.bytes + Option(replaced).fold(0L)(_.bytes)

  /** How many records its generations have, overwritten ones not counted. */
  def records: Long = generations.iterator.map(_.records).sum + pieces.iterator.map(_.records).sum

  /** Where its records are, overwritten ones too. */
  def arenas: Iterator[ArenaWalk] =
    pieces.iterator.map(_.walk) ++ generations.iterator.map(g => new ArenaWalk(g.memtable.arena))

  /** Puts all records of a generation, which must not be more than it counts, into the index. Returns how many it has. */
  private def putAll(generation: Generation): Long = {
    val some = new Array[Long](RecentIndex.prefetchedAtOnce)
    var n = 0
    var all = 0L
    generation.memtable.foreachRecord { record =>
      if (all < generation.records) {
        some(n) = record
        n += 1
        if (n == some.length) {
          putAll(some, n, all + 1 - n)
          n = 0
        }
      }
      all += 1
    }
    putAll(some, n, math.min(all, generation.records) - n)
    all
  }

  /** @param first the place of the first of the records among those of its generation */
  private def putAll(records: Array[Long], n: Int, first: Long): Unit = {
    var i = 0
    while (i < n) {
      prefetched += index.prefetch(records(i))
      i += 1
    }
    i = 0
    while (i < n) {
      val old = index.put(records(i))
      OffHeap.putLong(null, replaced.address(first + i), old)
      ordered.put(records(i), old)
      i += 1
    }
  }

  /**
   * The beginning of another, with the n oldest generations of this one, which changes no more and whose marks
   * go with them. Their records are found by walking the arenas.
   */
  private[recent] def cut(n: Int): IndexedGenerations = {
    val other = new IndexedGenerations(memory, spillDirectory)
    forgetMarks()
    try generations.take(n).foreach(other.adopt)
    catch {
      case e: Throwable =>
        other.release()
        throw e
    }
    other.merged = merged
    other
  }

  private def forgetMarks(): Unit = {
    marksHold = false
    VarHandle.fullFence()
  }

  private def adopt(generation: Generation): Unit = {
    index.reserve(generation.records)
    generation.retain()
    generation.memtable.arena.foreach { record =>
      Record.unmark(record)
      index.put(record)
    }
    append(generation)
  }

  /** Whether a record is the newest of its key. */
  private[recent] def isNewest(record: Long): Boolean = {
    val marked = Record.isMarked(record)
    VarHandle.acquireFence()
    if (marksHold) marked else index.isNewest(record)
  }

  /** Copies those of the first n records that are the newest of their keys; how many. */
  def newest(records: Array[Long], n: Int, to: Array[Long]): Int = {
    val marked = select(records, n, to)(Record.isMarked)
    VarHandle.acquireFence()
    if (marksHold) marked else select(records, n, to)(index.isNewest)
  }

  @inline private def select(records: Array[Long], n: Int, to: Array[Long])(wanted: Long => Boolean): Int = {
    var found = 0
    var i = 0
    while (i < n) {
      if (wanted(records(i))) {
        to(found) = records(i)
        found += 1
      }
      i += 1
    }
    found
  }

  /** Whether there is anything that [[evict]] could drop. */
  def evictable: Boolean = merged > 0 || pieces.nonEmpty

  /**
   * Drops the oldest of what the base holds too: a piece, or a generation that cannot be divided; the bytes
   * that this frees. When it throws, for there is no memory, nothing is lost: what has moved has moved, and the rest
   * is where it was.
   *
   * @param saving whether its newest records may move, where they are few enough and the budget has room
   */
  def evict(saving: Boolean): Long = {
    if (merged == generations.size) keepNewest(isEvicting = true)
    if (!isPieceOldest && !splitIntoSegments()) evictGeneration(saving)
    else {
      val oldest = pieces.head
      val saved = relocateNewest(() => oldest.walk, oldest.bytes, saving, oldest.holds)
      pieces.removeHead().free()
      oldest.bytes - saved
    }
  }

  private def isPieceOldest: Boolean = pieces.nonEmpty && (merged == 0 || pieces.head.sequence < generations.head.sequence)

  /** Divides the oldest generation into pieces, which are the oldest then; false where it is to stay whole. */
  private def splitIntoSegments(): Boolean = {
    val oldest = generations.head
    val arena = oldest.memtable.arena
    val divides = arena.segmentCount > 1 && !oldest.isShared && !ordered.hasOrders
    if (divides) {
      val records = oldest.records / arena.segmentCount
      pieces.prependAll(arena.parts.map { case (segment, end) =>
        new EvictableSegment(segment, end, records, oldest.sequence)
      })
      arena.giveAway()
      generations.removeHead().release()
      merged -= 1
    }
    divides
  }

  private def evictGeneration(saving: Boolean): Long = {
    val oldest = generations.head
    val bytes = oldest.memtable.bytes
    val arena = oldest.memtable.arena
    val saved = relocateNewest(() => new ArenaWalk(arena), bytes, saving, arena.holds)
    generations.removeHead().release()
    merged -= 1
    bytes - saved
  }

  /** Takes the records of a place out of the index, or saves them; the bytes of those that were saved. */
  private def relocateNewest(walk: () => ArenaWalk, bytes: Long, saving: Boolean, holds: Long => Boolean): Long = {
    var newestBytes = 0L
    foreachNewestOf(walk())(record => if (!Record.isRemoved(record)) newestBytes += Record.size(record))
    val few = saving && newestBytes > 0 && newestBytes <= bytes * IndexedGenerations.maxSaved
    val saved = if (few) reserve(newestBytes) else None
    try foreachNewestOf(walk())(relocate(_, saved))
    catch {
      case e: Throwable =>
        forgetMarks() // of what has moved
        ordered.forget()
        throw e
    }
    ordered.drop(holds, record => saved.fold(0L)(movedTo(record, _)))
    forgetReplacedIn(holds)
    saved.fold(0L)(_.bytes)
  }

  /** A new piece, the last to go. */
  private def reserve(bytes: Long): Option[EvictableSegment] = {
    val saved = EvictableSegment.reserve(bytes, nextSequence(), memory)
    try saved.foreach(pieces.append)
    catch {
      case e: Throwable =>
        saved.foreach(_.free())
        throw e
    }
    saved
  }

  private def relocate(record: Long, saved: Option[EvictableSegment]): Unit =
    if (saved.isEmpty || Record.isRemoved(record)) {
      index.remove(record)
      ordered.removed(record)
    } else {
      val copy = saved.get.add(record)
      index.move(record, copy)
      ordered.moved(record, copy)
    }

  /** The records of a place that are the newest of their keys, each before the next is looked for. */
  private def foreachNewestOf(walk: ArenaWalk)(use: Long => Unit): Unit = {
    var record = walk.next()
    while (record != 0) {
      if (isNewest(record)) use(record)
      record = walk.next()
    }
  }

  /** Where a record is now, 0 when it was not saved. */
  private def movedTo(record: Long, saved: EvictableSegment): Long = {
    val found = index.find(Record.hash(record), Record.keyAddress(record), Record.keyLength(record))
    if (saved.holds(found)) found else 0
  }

  def mergedBytes: Long = bytes(0, merged) + pieces.iterator.map(_.bytes).sum
  private[recent] def unmergedBytes: Long = bytes(merged, generations.size)
  def spilledBytes: Long = generations.iterator.map(_.memtable.spilledBytes).sum +
    pieces.iterator.map(_.spilledBytes).sum + index.spilledBytes + ordered.spilledBytes +
    Option(replaced).fold(0L)(_.spilledBytes)

  private def bytes(from: Int, until: Int): Long = {
    var sum = 0L
    var i = from
    while (i < until) {
      sum += generations(i).memtable.bytes
      i += 1
    }
    sum
  }
}

private[incremental] object IndexedGenerations {

  /** The share of a piece that may be saved: beyond it, too many records move for each one that goes. */
  private val maxSaved = 0.75

  private val replacedShift = 3
}
