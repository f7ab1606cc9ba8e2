package org.apache.spark.sql.execution.streaming.state.incremental.recent

import java.io.File

import org.apache.spark.sql.execution.streaming.state.incremental.memory.{
  MergedRecords, OffHeap, Record, SortedRuns, StoreMemory
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
        val made = new SortedRuns(memory, spillDirectory)
        try made.addUnsorted(ofFamily(family, foreach), wanted)
        catch {
          case e: Throwable =>
            made.free()
            throw e
        }
        orders += family -> made
        if (hasNewest) withNewest += family
        made
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
