package org.apache.spark.sql.execution.streaming.state.incremental.recent

import java.io.{File, IOException}

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{
  PieceTooLargeException, PrefixIndex, Record, SortedRecords, StoreMemory
}

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
      val shown = (record: Long) => rows.isNewest(record) && wanted(record)
      val newest = rows.newestChanges
      val (order, hasNewest) = orders.forRange(from, until, rows.foreachNewest, rows.isNewest, newest.isDefined)
      val older = order.sourcesIn(from, until, shown)
      newest.filterNot(_ => hasNewest).fold(older)(older ++ _.sorted.sourcesIn(from, until, shown))
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
  private[recent] def takeOutNewest(): Unit = orders.forgetThoseWithNewest()

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
      case _: IOException | _: IllegalStateException | _: OutOfMemoryError => forget()
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
