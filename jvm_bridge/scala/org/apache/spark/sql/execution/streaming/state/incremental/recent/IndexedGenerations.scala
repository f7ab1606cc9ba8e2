package org.apache.spark.sql.execution.streaming.state.incremental.recent

import java.io.File
import java.lang.invoke.VarHandle
import java.util.concurrent.atomic.AtomicInteger

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{
  ArenaWalk, OffHeap, Record, Segment, Slots, StoreMemory
}

// Recent changes under one index. A generation is added after its commit and taken out if its version is dropped; when
// memory is short, the oldest segments that the base contains are evicted, and their current rows copied.

/**
 * Generations whose records are in one index, oldest first. Shared by counted references: the store's own and one of
 * every open transaction; the last release frees the memory. They change only under the store's lock, and only while no
 * transaction but the calling one reads them.
 *
 * Memory is freed as in a log-structured file system: the oldest records that the base has, too, are dropped piece by
 * piece, and those that are still the newest of their keys move to a new piece, which is dropped later. So a state that
 * fits stays in memory, however often its keys change.
 */
private[incremental] final class IndexedGenerations(memory: StoreMemory, spillDirectory: File) {
  private val references = new AtomicInteger(1)

  /** A sum of the values of [[RecentIndex.prefetch]], so that the compiler does not remove its reads. */
  private var prefetched = 0

  /**
   * True if the marks of records are those of this index; false if another index, which has the records, too, has set
   * them.
   */
  @volatile private var marksHold = true
  val index = new RecentIndex(memory, spillDirectory)

  /** The same records in key order and by prefix. */
  val ordered = new OrderedIndex(this, memory, spillDirectory)
  val generations = mutable.ArrayDeque.empty[Generation]
  private val pieces = mutable.ArrayDeque.empty[EvictableSegment]
  private var lastSequence = 0L

  /**
   * The records that the newest generation replaced, in the order of its slots, 0 for none. Null once that generation
   * cannot be taken out any more; until then it keeps its table.
   */
  private var replaced: Slots = _

  /** The number of the oldest generations that the base has, too. */
  var generationsInBase = 0

  def retain(): Unit = references.incrementAndGet()

  def release(): Unit = if (references.decrementAndGet() == 0) {
    forgetReplaced()
    index.free()
    ordered.free()
    generations.foreach(_.release())
    generations.clear()
    generationsInBase = 0
    pieces.foreach(_.free())
    pieces.clear()
  }

  /** The number of readers, without the store itself. */
  def readers: Int = references.get - 1

  /** Returns the bytes that the index and the list of replaced records take for a generation. */
  private[recent] def bytesFor(generation: Generation): Long =
    index.bytesFor(generation.records) + (generation.records << IndexedGenerations.replacedShift)

  /**
   * Adds the next generation and takes over the caller's reference to it. The generation before cannot be taken out any
   * more. If it throws because there is no memory, the index has not changed.
   *
   * @throws InconsistentStateException if the index has changed in part
   */
  private[recent] def publish(generation: Generation): Unit = {
    keepNewest(isEvicting = false)
    index.reserve(generation.records)
    replaced = Slots.allocate(generation.records, IndexedGenerations.replacedShift, memory, spillDirectory)
    wholly {
      val put = putAll(generation)
      if (put != generation.records) {
        throw new InconsistentStateException(
          s"${generation.version} has $put records in memory, and had ${generation.records}")
      }
      append(generation)
    }
  }

  /** Makes a change that nobody can use, nor make again, after an error: the error then says that. */
  private def wholly[T](change: => T): T =
    try change
    catch {
      case e: InconsistentStateException => throw e
      case e: Throwable =>
        throw new InconsistentStateException(s"The index of rows in memory has changed in part: $e", e)
    }

  /** The newest generation, while it can be taken out and is not part of the orders. */
  private[recent] def newestChanges: Option[Generation] = if (replaced == null) None else generations.lastOption

  /**
   * Makes the newest generation one that stays.
   *
   * @param isEvicting true if this may take no memory: the next scans make the orders anew then
   */
  private def keepNewest(isEvicting: Boolean): Unit = {
    newestChanges.foreach { newest =>
      if (isEvicting) ordered.forgetOrders() else ordered.keepNewest(newest)
      if (!newest.isShared) { // else a reader finds keys in its table, and reads its order
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

  /** Returns true if [[unpublishNewest]] may be called: no base has the newest generation, and none came after it. */
  private[recent] def canUnpublishNewest: Boolean = replaced != null && generationsInBase < generations.size

  /**
   * Undoes [[publish]] of the newest generation, and returns it with its reference. Rows that it replaced and that were
   * evicted since are in the base.
   */
  private[recent] def unpublishNewest(): Generation = wholly {
    val newest = generations.last
    var i = 0L
    newest.memtable.foreachRecord { record =>
      val old = OffHeap.getLong(null, replaced.address(i))
      index.takeBack(record, old)
      ordered.takenBack(record, old)
      i += 1
    }
    ordered.dropNewest()
    forgetReplaced()
    generations.removeLast()
  }

  /** Forgets the replaced records in memory that is freed. */
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

  /** Calls a function with the newest record of each key, removed ones too. */
  private[recent] def foreachNewest(use: Long => Unit): Unit = {
    var slot = 0L
    while (slot < index.size) {
      val record = index.at(slot)
      if (record != 0) use(record)
      slot += 1
    }
  }

  /**
   * Checks the number of keys in memory.
   *
   * @param keys number of keys at the newest version
   * @param hasBase true if there is a base, so that memory may have fewer keys
   * @throws InconsistentStateException if memory has more keys than the newest version, or, without a base, fewer
   */
  def check(keys: Long, hasBase: Boolean): Unit = {
    val present = index.present
    if (present > keys || !hasBase && present < keys || present < 0 || pieces.isEmpty && index.count > records) {
      val last = generations.lastOption.map(_.version)
      throw new InconsistentStateException(
        s"Memory has $present keys of ${index.count} in $records records up to $last, where there are $keys, base: $hasBase")
    }
  }

  /** The bytes of the index and of the order. */
  def indexBytes: Long = index.bytes + ordered.bytes + Option(replaced).fold(0L)(_.bytes)

  /** The number of records, without overwritten ones. */
  def records: Long = generations.iterator.map(_.records).sum + pieces.iterator.map(_.records).sum

  /** Returns walks over all records, overwritten ones too. */
  def arenas: Iterator[ArenaWalk] =
    pieces.iterator.map(_.walk) ++ generations.iterator.map(g => new ArenaWalk(g.memtable.arena))

  /**
   * Puts all records of a generation, of which there must be no more than it counts, into the index; returns their
   * number.
   */
  private def putAll(generation: Generation): Long = {
    val records = new Array[Long](RecentIndex.prefetchedAtOnce)
    var n = 0
    var all = 0L
    generation.memtable.foreachRecord { record =>
      if (all < generation.records) {
        records(n) = record
        n += 1
        if (n == records.length) {
          putAll(records, n, all + 1 - n)
          n = 0
        }
      }
      all += 1
    }
    putAll(records, n, math.min(all, generation.records) - n)
    all
  }

  /**
   * Puts the first n records into the index.
   *
   * @param first the position of the first of them among those of its generation
   */
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
   * Makes other generations of the n oldest of these, and walks the arenas to index their records. This object does not
   * change any more, and its marks become those of the other.
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
    other.generationsInBase = generationsInBase
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

  /** Returns true if a record is the newest of its key. */
  private[recent] def isNewest(record: Long): Boolean = {
    val marked = Record.isMarked(record)
    VarHandle.acquireFence()
    if (marksHold) marked else index.isNewest(record)
  }

  /** Copies those of the first n records that are the newest of their keys; returns their number. */
  def newest(records: Array[Long], n: Int, to: Array[Long]): Int = {
    val marked = select(records, n, to)(Record.isMarked)
    VarHandle.acquireFence()
    if (marksHold) marked else select(records, n, to)(index.isNewest)
  }

  @inline private def select(records: Array[Long], n: Int, to: Array[Long])(wanted: Long => Boolean): Int = {
    var count = 0
    var i = 0
    while (i < n) {
      if (wanted(records(i))) {
        to(count) = records(i)
        count += 1
      }
      i += 1
    }
    count
  }

  /** Returns true if [[evict]] can drop records. */
  def evictable: Boolean = generationsInBase > 0 || pieces.nonEmpty

  /**
   * Drops the oldest records that the base has, too: a piece, or a generation that cannot be divided. If it throws
   * because there is no memory, nothing is lost: the moved records have moved, and the others are where they were.
   *
   * @param saving true if the newest records of their keys may move, if they are few enough and the budget has room
   * @return the freed bytes
   */
  def evict(saving: Boolean): Long = {
    if (generationsInBase == generations.size) keepNewest(isEvicting = true)
    if (!isPieceOldest && !splitIntoSegments()) evictGeneration(saving)
    else {
      val oldest = pieces.head
      val saved = relocateNewest(() => oldest.walk, oldest.bytes, saving, oldest.holds)
      pieces.removeHead().free()
      oldest.bytes - saved
    }
  }

  private def isPieceOldest: Boolean =
    pieces.nonEmpty && (generationsInBase == 0 || pieces.head.sequence < generations.head.sequence)

  /** Divides the oldest generation into pieces, which become the oldest; returns false if it is not to be divided. */
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
      generationsInBase -= 1
    }
    divides
  }

  private def evictGeneration(saving: Boolean): Long = {
    val oldest = generations.head
    val bytes = oldest.memtable.bytes
    val arena = oldest.memtable.arena
    val saved = relocateNewest(() => new ArenaWalk(arena), bytes, saving, arena.holds)
    generations.removeHead().release()
    generationsInBase -= 1
    bytes - saved
  }

  /**
   * Takes the records of a piece or a generation out of the index, or saves them; returns the bytes of the saved ones.
   */
  private def relocateNewest(walk: () => ArenaWalk, bytes: Long, saving: Boolean, holds: Long => Boolean): Long = {
    var newestBytes = 0L
    foreachNewestOf(walk())(record => if (!Record.isRemoved(record)) newestBytes += Record.size(record))
    val few = saving && newestBytes > 0 && newestBytes <= bytes * IndexedGenerations.maxSaved
    val saved = if (few) reserve(newestBytes) else None
    try foreachNewestOf(walk())(relocate(_, saved))
    catch {
      case e: Throwable =>
        forgetMarks() // those of the moved records
        ordered.forget()
        throw e
    }
    ordered.drop(holds, record => saved.fold(0L)(movedTo(record, _)))
    forgetReplacedIn(holds)
    saved.fold(0L)(_.bytes)
  }

  /** Reserves a new piece, the last to be dropped. */
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

  /**
   * Calls a function with the records of a walk that are the newest of their keys, with each before it looks for the
   * next.
   */
  private def foreachNewestOf(walk: ArenaWalk)(use: Long => Unit): Unit = {
    var record = walk.next()
    while (record != 0) {
      if (isNewest(record)) use(record)
      record = walk.next()
    }
  }

  /** Returns the copy of a record; 0 if it was not saved. */
  private def movedTo(record: Long, saved: EvictableSegment): Long = {
    val newest = index.find(Record.hash(record), Record.keyAddress(record), Record.keyLength(record))
    if (saved.holds(newest)) newest else 0
  }

  def mergedBytes: Long = bytes(0, generationsInBase) + pieces.iterator.map(_.bytes).sum
  private[recent] def unmergedBytes: Long = bytes(generationsInBase, generations.size)
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

  /**
   * The largest share of a piece that is saved: if more was saved, too many records would move for each that is
   * dropped.
   */
  private val maxSaved = 0.75

  private val replacedShift = 3
}

/**
 * An index that finds the newest record of a key among many generations: open addressing, 8 bytes a slot (48 bits of
 * the address, 16 bits of the hash). It marks the records that it finds, so that a reader of all records in the order
 * of memory need not look each up. Many threads may read it at a time while none changes it.
 */
private[incremental] final class RecentIndex(memory: StoreMemory, spillDirectory: File) {
  import RecentIndex._

  private var table: Slots = _
  private var mask = 0L
  private var takenSlots = 0L

  /** The number of keys that the index finds, and of those whose newest record is not a removal. */
  var count = 0L
  var present = 0L

  def bytes: Long = if (table == null) 0 else table.bytes
  def spilledBytes: Long = if (table == null) 0 else table.spilledBytes

  /** Returns the newest record of a key; 0 if it has none. */
  def find(hash: Long, key: Array[Byte]): Long = {
    if (count == 0) return 0
    val tag = tagOf(hash.toInt)
    var i = hash & mask
    while (true) {
      val head = OffHeap.getLong(null, table.address(i))
      if (head == 0) return 0
      if ((head & tagMask) == tag && head != deleted && Record.hasKey(head & addressMask, hash.toInt, key)) {
        return head & addressMask
      }
      i = (i + 1) & mask
    }
    0
  }

  def find(hash: Int, keyAt: Long, length: Int): Long = {
    val slot = slotOf(hash, keyAt, length)
    if (slot == 0) 0 else OffHeap.getLong(null, slot) & addressMask
  }

  private def slotOf(hash: Int, keyAt: Long, length: Int): Long = {
    if (count == 0) return 0
    val tag = tagOf(hash)
    var i = hash & mask
    while (true) {
      val slot = table.address(i)
      val head = OffHeap.getLong(null, slot)
      if (head == 0) return 0
      if ((head & tagMask) == tag && head != deleted && Record.hasKey(head & addressMask, hash, keyAt, length))
        return slot
      i = (i + 1) & mask
    }
    0
  }

  /** Returns true if a record is the newest of its key. */
  private[recent] def isNewest(record: Long): Boolean = slotOf(record) != 0

  private def slotOf(record: Long): Long = {
    if (count == 0) return 0
    val hash = Record.hash(record)
    val tagged = record | tagOf(hash)
    var i = hash & mask
    while (true) {
      val slot = table.address(i)
      val head = OffHeap.getLong(null, slot)
      if (head == tagged) return slot
      if (head == 0) return 0
      i = (i + 1) & mask
    }
    0
  }

  /** Returns the bytes that [[reserve]] takes for this many more keys. */
  private[recent] def bytesFor(more: Long): Long =
    if ((takenSlots + more) * 4 > capacity * 3) java.lang.Long.highestOneBit((count + more) * 8 / 5 + smallest) * 2 << 3
    else 0

  /** Makes room for this many more keys; may take memory, or a file, for a larger table. */
  private[recent] def reserve(more: Long): Unit = {
    val room = bytesFor(more)
    if (room > 0) rebuild(room >> 3)
  }

  private def capacity: Long = if (table == null) 0 else mask + 1

  private def rebuild(newCapacity: Long): Unit = {
    val grown = Slots.zeros(newCapacity, slotShift, memory, spillDirectory)
    val old = table
    val oldCapacity = capacity
    table = grown
    mask = newCapacity - 1
    takenSlots = count
    var i = 0L
    while (i < oldCapacity) {
      val head = OffHeap.getLong(null, old.address(i))
      if (head != 0 && head != deleted) OffHeap.putLong(null, freeSlot(Record.hash(head & addressMask)), head)
      i += 1
    }
    if (old != null) old.free()
  }

  private def freeSlot(hash: Int): Long = {
    var i = hash & mask
    while (OffHeap.getLong(null, table.address(i)) != 0) i = (i + 1) & mask
    table.address(i)
  }

  /**
   * Reads the memory that [[put]] of a record, or a search, reads first. Several such reads wait for memory at the same
   * time, while the searches of several puts would wait one after the other.
   *
   * @return a value without a meaning, so that the compiler does not remove the reads
   */
  def prefetch(record: Long): Int = {
    val head = if (count == 0) 0L else OffHeap.getLong(null, table.address(Record.hash(record) & mask))
    if (head == 0 || head == deleted) 0 else Record.hash(head & addressMask)
  }

  /**
   * Makes a record the newest of its key; [[reserve]] must have been called.
   *
   * @return the newest record before; 0 if there was none
   */
  private[recent] def put(record: Long): Long = {
    val hash = Record.hash(record)
    val slot = slotOf(hash, Record.keyAddress(record), Record.keyLength(record))
    val old = if (slot == 0) 0L else OffHeap.getLong(null, slot) & addressMask
    if (slot == 0) {
      OffHeap.putLong(null, freeSlot(hash), record | tagOf(hash))
      count += 1
      takenSlots += 1
    } else {
      if (!Record.isRemoved(old)) present -= 1
      Record.unmark(old)
      OffHeap.putLong(null, slot, record | tagOf(hash))
    }
    Record.mark(record)
    if (!Record.isRemoved(record)) present += 1
    old
  }

  /**
   * Undoes [[put]] of a record that is the newest of its key.
   *
   * @param old the record that becomes the newest; 0: none
   */
  private[recent] def takeBack(record: Long, old: Long): Unit = {
    val slot = slotOf(record)
    if (slot == 0) throw new InconsistentStateException(s"A record of ${Record.size(record)} bytes is not in the index")
    if (!Record.isRemoved(record)) present -= 1
    Record.unmark(record)
    if (old == 0) {
      OffHeap.putLong(null, slot, deleted)
      count -= 1
    } else {
      OffHeap.putLong(null, slot, old | tagOf(Record.hash(old)))
      Record.mark(old)
      if (!Record.isRemoved(old)) present += 1
    }
  }

  /** Makes a copy take the place of a record that is the newest of its key. */
  private[recent] def move(record: Long, copy: Long): Unit =
    OffHeap.putLong(null, slotOf(record), copy | tagOf(Record.hash(copy)))

  /** Forgets a record if it is the newest of its key; then the index finds nothing for the key. */
  private[recent] def remove(record: Long): Unit = {
    val slot = slotOf(record)
    if (slot != 0) {
      OffHeap.putLong(null, slot, deleted)
      count -= 1
      if (!Record.isRemoved(record)) present -= 1
    }
  }

  /** The number of slots, for [[at]]. */
  def size: Long = capacity

  /** Returns the record in a slot; 0 if there is none. */
  def at(i: Long): Long = {
    val head = OffHeap.getLong(null, table.address(i))
    if (head == deleted) 0 else head & addressMask
  }

  private[recent] def free(): Unit = if (table != null) {
    table.free()
    table = null
    count = 0
    present = 0
    takenSlots = 0
  }
}

private[incremental] object RecentIndex {
  private val addressMask = (1L << 48) - 1
  private val tagMask = ~addressMask
  private val deleted = 1L
  private val smallest = 128L
  private val slotShift = 3

  /** The number of records that are worth reading ahead at the same time. */
  val prefetchedAtOnce = 64

  private def tagOf(hash: Int): Long = (hash >>> 16).toLong << 48
}

/**
 * An error that says that the memory of a store contradicts itself: a defect of this program or of the machine. Nothing
 * of this memory may be used.
 */
private[incremental] final class InconsistentStateException(message: String, cause: Throwable = null)
    extends IllegalStateException(message, cause)

/**
 * A segment of records that the base has, too, and whose generation is gone: a part of a generation that is too large
 * to be dropped at once, or the records that outlived others. For one thread at a time.
 *
 * @param sequence its position among all that came into the index of a store, oldest first
 */
private[recent] final class EvictableSegment(
    segment: Segment,
    private var end: Long,
    private var count: Long,
    val sequence: Long) {
  def bytes: Long = segment.bytes
  def spilledBytes: Long = if (segment.spilled) segment.bytes else 0

  /** The approximate number of records, without overwritten ones. */
  def records: Long = count

  /** Copies a record, for which room was reserved, and returns the copy. */
  def add(record: Long): Long = {
    val size = Record.size(record)
    if (end + size > segment.address + segment.bytes) {
      throw new InconsistentStateException(
        s"A record of $size bytes has no room in the ${segment.bytes} that were reserved")
    }
    OffHeap.copyMemory(null, record, null, end, size)
    end += size
    count += 1
    end - size
  }

  def walk: ArenaWalk = new ArenaWalk(Array(segment.address), Array(end))

  /** Returns true if an address lies in the segment. */
  def holds(address: Long): Boolean = address >= segment.address && address < end

  def free(): Unit = segment.free()
}

private[recent] object EvictableSegment {

  /** Reserves room for records of this many bytes; None if the budget has less left. */
  def reserve(bytes: Long, sequence: Long, memory: StoreMemory): Option[EvictableSegment] =
    if (memory.reserve(bytes)) {
      val segment = Segment.reserved(bytes, memory)
      Some(new EvictableSegment(segment, segment.address, 0, sequence))
    } else None
}
