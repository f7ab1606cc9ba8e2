package org.apache.spark.sql.execution.streaming.state.incremental.recent

import java.io.{File, IOException}

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{PieceTooLargeException, PrefixIndex, Record, SortedRecords, StoreMemory}

/**
 * The newest records of generations for scans in key order and by prefix: made by the first scan that asks, and kept up
 * from then on. It only makes scans quick: where there is no memory to extend it, it goes as a whole, and the next scan
 * makes it anew. Many may read it at a time while nobody changes it.
 */
private[incremental] final class OrderedIndex private[recent] (
    rows: IndexedGenerations,
    memory: StoreMemory,
    spillDirectory: File) {

  /** The records in key order, where somebody asked for order. */
  private val orders = new FamilyOrders(memory, spillDirectory)

  /** The rows by prefix, removed ones left out; null until somebody scanned a prefix. */
  private var prefixes: PrefixIndex = _
  private var prefixesFit = true

  def bytes: Long = orders.bytes + (if (prefixes == null) 0 else prefixes.bytes)
  def spilledBytes: Long = orders.spilledBytes + (if (prefixes == null) 0 else prefixes.spilledBytes)

  /** Whether any column family has been read in order. */
  private[recent] def hasOrders: Boolean = !orders.isEmpty

  /**
   * The newest records with from <= key < until (null: no end), removed ones too, as sorted sources. The first
   * call for a column family sorts it.
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
   * The newest records whose keys begin with a prefix that [[PrefixIndex.serves]], in no order. Removed ones are left
   * out, but not where a prefix has more records than fit into one piece of memory: then the order of keys serves.
   *
   * @param until the first key after those
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

  /** The newest generation of the index stays in it. */
  private[recent] def keepNewest(generation: Generation): Unit = forgetOnFailure(orders.add(generation.sorted, rows.isNewest))

  /** The newest generation is taken out of the index; [[takenBack]] was called for each of its records. */
  private[recent] def takeOutNewest(): Unit = orders.forgetThoseWithNewest()

  /** A record came into the index in place of an older one of its key, 0 when there was none. */
  private[recent] def put(record: Long, old: Long): Unit = if (prefixes != null) forgetOnFailure(show(record, old))

  private def show(record: Long, old: Long): Unit = {
    val isShown = old != 0 && !Record.isRemoved(old)
    if (Record.isRemoved(record)) { if (isShown) prefixes.remove(old) }
    else if (isShown) prefixes.replace(old, record)
    else prefixes.add(record)
  }

  /** A record left the index, and an older one of its key took its place, 0: none. */
  private[recent] def takenBack(record: Long, old: Long): Unit = if (prefixes != null) forgetOnFailure {
    val isShown = old != 0 && !Record.isRemoved(old)
    if (Record.isRemoved(record)) { if (isShown) prefixes.add(old) }
    else if (isShown) prefixes.replace(record, old)
    else prefixes.remove(record)
  }

  /** A record left the index. */
  private[recent] def removed(record: Long): Unit = if (prefixes != null) forgetOnFailure(prefixes.remove(record))

  /** A record has another place now. */
  private[recent] def moved(record: Long, copy: Long): Unit =
    if (prefixes != null) forgetOnFailure(prefixes.replace(record, copy))

  /** A place goes whose records all were told to [[removed]] or [[moved]]: as [[FamilyOrders.drop]]. */
  private[recent] def drop(holds: Long => Boolean, movedTo: Long => Long): Unit = orders.drop(holds, movedTo)

  private def forgetOnFailure(action: => Unit): Unit =
    try action
    catch {
      case _: IOException | _: IllegalStateException | _: OutOfMemoryError => forget()
    }

  /** Until the next scan makes it anew. */
  private[recent] def forget(): Unit = {
    free()
    prefixes = null
  }

  /** Forgets the order of keys until the next scan makes it anew. */
  private[recent] def forgetOrders(): Unit = orders.free()

  private[recent] def free(): Unit = {
    orders.free()
    if (prefixes != null) prefixes.free()
  }
}
