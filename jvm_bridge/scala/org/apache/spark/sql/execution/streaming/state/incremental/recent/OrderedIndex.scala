package org.apache.spark.sql.execution.streaming.state.incremental.recent

import java.io.{File, IOException}

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{
  MergedRecords, OffHeap, OrderedRecords, OrderedSnapshot, PieceTooLargeException, PrefixIndex, Record, RecordSpool,
  SortedRecords, SortedRuns, StoreMemory
}

// Recent changes in key order and by prefix: first of all generations in the index, then of the column families that
// are read in order, then of the changes of the batch itself.

/**
 * An index of the newest records of generations for scans in key order and by prefix: the first such scan makes it, and
 * later changes keep it up to date. It only makes scans quick: if there is no memory to extend it, it is dropped, and
 * the next scan makes it anew. Many threads may read it at a time while none changes it.
 */
private[incremental] final class OrderedIndex private[recent] (
    rows: IndexedGenerations,
    memory: StoreMemory,
    spillDirectory: File) {

  /** The records in key order, for the column families that were scanned in order. */
  private val orders = new FamilyOrders(memory, spillDirectory)

  /** The rows by prefix, without removed ones; null before the first scan of a prefix. */
  private var prefixes: PrefixIndex = _
  private var prefixesFit = true

  def bytes: Long = orders.bytes + (if (prefixes == null) 0 else prefixes.bytes)
  def spilledBytes: Long = orders.spilledBytes + (if (prefixes == null) 0 else prefixes.spilledBytes)

  /** Returns true if a column family was scanned in order. */
  private[recent] def hasOrders: Boolean = !orders.isEmpty

  /**
   * Returns the newest records with from <= key < until (null: no end), removed ones too, as sorted sources. The first
   * call for a column family sorts it.
   *
   * @param wanted returns true for the records that the sources give
   */
  def sourcesIn(from: Array[Byte], until: Array[Byte], wanted: Long => Boolean): Seq[SortedRecords] =
    synchronized {
      val isShown = (record: Long) => rows.isNewest(record) && wanted(record)
      val newest = rows.newestChanges
      val (order, hasNewest) = orders.forRange(from, until, rows.foreachNewest, rows.isNewest, newest.isDefined)
      val older = order.sourcesIn(from, until, isShown)
      newest.filterNot(_ => hasNewest).fold(older)(older ++ _.sorted.sourcesIn(from, until, isShown))
    }

  /**
   * Calls a function with the newest records whose keys begin with a prefix that [[PrefixIndex.serves]], in no order.
   * Removed ones are left out, unless a prefix has more records than one piece of memory takes: then the order of keys
   * serves.
   *
   * @param until the first key after the prefix
   */
  def foreachWith(prefix: Array[Byte], until: Array[Byte])(use: Long => Unit): Unit =
    byPrefix() match {
      case Some(index) => index.foreach(prefix)(use)
      case None => sourcesIn(prefix, until, _ => true).foreach(_.foreach(use))
    }

  private def byPrefix(): Option[PrefixIndex] = synchronized {
    if (prefixes == null && prefixesFit) {
      val all = new PrefixIndex(memory, spillDirectory)
      try {
        rows.foreachNewest(record => if (!Record.isRemoved(record)) all.add(record))
        prefixes = all
      } catch {
        case _: PieceTooLargeException =>
          all.free()
          prefixesFit = false
        case e: Throwable =>
          all.free()
          throw e
      }
    }
    Option(prefixes)
  }

  /** Adds the newest generation to the orders, because it stays in the index. */
  private[recent] def keepNewest(generation: Generation): Unit =
    forgetOnFailure(orders.add(generation.sorted, rows.isNewest))

  /**
   * Drops the orders of the newest generation, which is taken out; [[takenBack]] was called for each of its records.
   */
  private[recent] def dropNewest(): Unit = orders.forgetThoseWithNewest()

  /** Adds a record that came into the index in place of an older one of its key; 0 if there was none. */
  private[recent] def put(record: Long, old: Long): Unit = if (prefixes != null) forgetOnFailure(show(record, old))

  private def show(record: Long, old: Long): Unit = {
    val isShown = old != 0 && !Record.isRemoved(old)
    if (Record.isRemoved(record)) { if (isShown) prefixes.remove(old) }
    else if (isShown) prefixes.replace(old, record)
    else prefixes.add(record)
  }

  /** Removes a record that left the index, and adds the older one of its key that took its place; 0: none. */
  private[recent] def takenBack(record: Long, old: Long): Unit = if (prefixes != null) forgetOnFailure {
    val isShown = old != 0 && !Record.isRemoved(old)
    if (Record.isRemoved(record)) { if (isShown) prefixes.add(old) }
    else if (isShown) prefixes.replace(record, old)
    else prefixes.remove(record)
  }

  /** Removes a record that left the index. */
  private[recent] def removed(record: Long): Unit = if (prefixes != null) forgetOnFailure(prefixes.remove(record))

  /** Replaces a record by its copy. */
  private[recent] def moved(record: Long, copy: Long): Unit =
    if (prefixes != null) forgetOnFailure(prefixes.replace(record, copy))

  /**
   * Drops the records of memory that is freed, after [[removed]] or [[moved]] was called for each, like
   * [[FamilyOrders.drop]].
   */
  private[recent] def drop(holds: Long => Boolean, movedTo: Long => Long): Unit = orders.drop(holds, movedTo)

  private def forgetOnFailure(action: => Unit): Unit =
    try action
    catch {
      case e: Throwable => // the action may have changed some of them
        forget()
        e match {
          case _: IOException | _: IllegalStateException | _: OutOfMemoryError => ()
          case _ => throw e
        }
    }

  /** Drops the orders and prefixes until the next scan makes them anew. */
  private[recent] def forget(): Unit = {
    free()
    prefixes = null
  }

  /** Drops the order of keys until the next scan makes it anew. */
  private[recent] def forgetOrders(): Unit = orders.free()

  private[recent] def free(): Unit = {
    orders.free()
    if (prefixes != null) prefixes.free()
  }
}

/**
 * The records of several generations in key order, for the column families that were read in order before. Many threads
 * may read at a time while none changes it.
 */
private[recent] final class FamilyOrders(memory: StoreMemory, spillDirectory: File) {
  import FamilyOrders._

  /** The order of each family, by its id. */
  @volatile private var orders = Map.empty[Long, SortedRuns]

  /** Families whose order has the records of the newest generation, which has not been added to the other orders. */
  private var withNewest = Set.empty[Long]

  def isEmpty: Boolean = orders.isEmpty
  def bytes: Long = orders.valuesIterator.map(_.bytes).sum
  def spilledBytes: Long = orders.valuesIterator.map(_.spilledBytes).sum

  /**
   * Returns the order that has all keys with from <= key < until (null: no end), and makes it if there is none.
   *
   * @param foreach gives each record of any family to a function
   * @param wanted returns true for the records that the order has to have
   * @param hasNewest true if there is a generation that may be taken out again, whose records `foreach` gives too
   * @return the order, and true if it has the records of the newest generation
   */
  def forRange(
      from: Array[Byte],
      until: Array[Byte],
      foreach: (Long => Unit) => Unit,
      wanted: Long => Boolean,
      hasNewest: Boolean): (SortedRuns, Boolean) = {
    val family = familyOf(from, until)
    val order = orders.getOrElse(family, {
        val runs = new SortedRuns(memory, spillDirectory)
        try runs.addUnsorted(ofFamily(family, foreach), wanted)
        catch {
          case e: Throwable =>
            runs.free()
            throw e
        }
        orders += family -> runs
        if (hasNewest) withNewest += family
        runs
      })
    (order, withNewest(family))
  }

  /** Adds the records of the newest generation, of any families. Merges drop the records that are not wanted. */
  def add(sorted: => SortedRuns, wanted: Long => Boolean): Unit = {
    orders.foreach { case (family, order) =>
      if (!withNewest(family)) {
        order.addSorted(new MergedRecords(sorted.sourcesIn(firstOf(family), firstAfter(family), _ => true)), wanted)
      }
    }
    withNewest = Set.empty
  }

  /** Forgets the orders that have records of the newest generation, which is taken out. */
  def forgetThoseWithNewest(): Unit = {
    val removed = withNewest.flatMap(orders.get)
    orders --= withNewest
    withNewest = Set.empty
    removed.foreach(_.free())
  }

  /** Drops and moves records like [[SortedRuns.drop]]. */
  def drop(holds: Long => Boolean, movedTo: Long => Long): Unit = orders.valuesIterator.foreach(_.drop(holds, movedTo))

  def free(): Unit = {
    val old = orders
    orders = Map.empty
    withNewest = Set.empty
    old.valuesIterator.foreach(_.free())
  }
}

private object FamilyOrders {

  /** The id that stands for all families. */
  private val all = -1L
  private val last = 0xffffL

  private def ofFamily(family: Long, foreach: (Long => Unit) => Unit): (Long => Unit) => Unit =
    if (family == all) foreach
    else use => foreach(record => if (isOf(record, family)) use(record))

  /** Returns true if a record belongs to a family: keys begin with the two bytes of their family. */
  private def isOf(record: Long, family: Long): Boolean = {
    val key = Record.keyAddress(record)
    Record.keyLength(record) >= 2 && ((OffHeap.getByte(null, key) & 0xff) << 8 | OffHeap.getByte(null,
      key + 1) & 0xff) == family
  }

  /** Returns the family that a range lies in; [[all]] if the range may reach into another family. */
  private def familyOf(from: Array[Byte], until: Array[Byte]): Long =
    if (from.length < 2 || until == null || until.length < 2) all
    else {
      val family = idOf(from)
      if (idOf(until) == family || idOf(until) == family + 1 && until.length == 2) family else all
    }

  private def firstOf(family: Long): Array[Byte] = if (family == all) Array.emptyByteArray else bytesOf(family)

  private def firstAfter(family: Long): Array[Byte] = if (family == all || family == last) null else bytesOf(family + 1)

  private def bytesOf(id: Long): Array[Byte] = Array((id >>> 8).toByte, id.toByte)

  private def idOf(key: Array[Byte]): Long = ((key(0) & 0xff) << 8 | key(1) & 0xff).toLong
}

/**
 * The changed records of a memtable for scans in key order. The first scans sort them, or index them by prefix; later
 * changes keep both up to date. For one thread at a time.
 */
private[incremental] final class OrderedChanges private[recent] (
    memtable: MemTable,
    memory: StoreMemory,
    spillDirectory: File) {
  import OrderedChanges._

  /** The changes in key order, and the changes that are not in there yet; null before the first scan in order. */
  private var runs: SortedRuns = _
  private var unsorted: RecordSpool = _
  private var rangesAsked = 0

  /** The index by prefix; null before the first scan of a prefix. */
  private var prefixes: PrefixIndex = _
  private var prefixesFit = true

  /** The bytes of memory. For any thread; approximate while another thread changes the memtable. */
  def bytes: Long =
    Option(runs).fold(0L)(_.bytes) + Option(unsorted).fold(0L)(_.bytes) + Option(prefixes).fold(0L)(_.bytes)

  /** The bytes that lie in files. For any thread; approximate while another thread changes the memtable. */
  def spilledBytes: Long =
    Option(runs).fold(0L)(_.spilledBytes) + Option(unsorted).fold(0L)(_.spilledBytes) +
      Option(prefixes).fold(0L)(_.spilledBytes)

  /**
   * Notes that a key has a changed record.
   *
   * @param old the record of the key before; 0 if it had none
   * @param record the record of the key now
   * @param isFirst true if the key had not been changed before
   */
  private[recent] def note(old: Long, record: Long, isFirst: Boolean): Unit = {
    if (prefixes != null && isFirst) orDropPrefixes(prefixes.add(record))
    else if (prefixes != null && record != old) orDropPrefixes(prefixes.replace(old, record))
    if (unsorted != null && (record != old || isFirst)) unsorted.add(record)
  }

  /**
   * Returns the current records of changed keys with from <= key < until (null: no end), in key order, unaffected by
   * later changes; the caller frees them. The first few calls look through all changes; later calls keep them in order.
   */
  def in(from: Array[Byte], until: Array[Byte]): OrderedRecords =
    if (memtable.changes == 0) OrderedRecords.none
    else {
      rangesAsked += 1
      if (runs == null && rangesAsked <= maxUnordered) {
        snapshot(isSorted = false) { add =>
          memtable.foreachChange(record => if (Record.within(record, from, until)) add(record))
        }
      } else {
        keepOrder()
        snapshot(isSorted = true)(new MergedRecords(runs.sourcesIn(from, until, memtable.isCurrentChange)).foreach(_))
      }
    }

  private def snapshot(isSorted: Boolean)(foreach: (Long => Unit) => Unit): OrderedRecords =
    OrderedSnapshot.of(memory, spillDirectory, isSorted)(foreach)

  private def keepOrder(): Unit = {
    if (runs == null) {
      unsorted = memtable.newSpool()
      runs = memtable.sortedChanges()
    }
    if (!unsorted.isEmpty) {
      runs.addUnsorted(unsorted.foreach, memtable.isCurrentChange)
      unsorted.free()
    }
  }

  /**
   * Returns the current records of changed keys that begin with a prefix that [[PrefixIndex.serves]], in key order,
   * unaffected by later changes; the caller frees them.
   *
   * @param until the first key after the prefix
   */
  def beginningWith(prefix: Array[Byte], until: Array[Byte]): OrderedRecords = {
    if (prefixes == null && prefixesFit && memtable.changes > 0) {
      prefixes = new PrefixIndex(memory, spillDirectory)
      orDropPrefixes(memtable.foreachChange(prefixes.add))
    }
    if (prefixes == null) in(prefix, until)
    else {
      snapshot(isSorted = false)(add => prefixes.foreach(prefix)(add))
    }
  }

  /**
   * Runs an action on the index of prefixes, and drops the index if a prefix has more records than one piece of memory
   * takes: then scans use the order of keys.
   */
  private def orDropPrefixes(action: => Unit): Unit =
    try action
    catch {
      case _: PieceTooLargeException =>
        prefixes.free()
        prefixes = null
        prefixesFit = false
    }

  /** Frees the memory. A later scan makes the order anew. */
  def free(): Unit = {
    if (runs != null) runs.free()
    if (unsorted != null) unsorted.free()
    if (prefixes != null) prefixes.free()
    runs = null
    unsorted = null
    prefixes = null
  }
}

private object OrderedChanges {

  /** The number of scans that look through all changes, before sorting them is cheaper. */
  private val maxUnordered = 4
}
