package org.apache.spark.sql.execution.streaming.state.incremental

import java.util.{Arrays, TreeMap}

import org.rocksdb.{Options, RocksDB}

/**
 * The rows of one store, in memory and in a base: what transactions begin on. Thread-safe.
 */
final class StoreState(memory: StoreMemory, conf: StateConf) {
  private type Rows = TreeMap[Array[Byte], Array[Byte]]
  private var versions = List(VersionId.empty -> newRows())
  private var closed = false

  private def newRows(): Rows = new TreeMap[Array[Byte], Array[Byte]](Arrays.compareUnsigned(_: Array[Byte], _: Array[Byte]))

  private def check(): Unit = if (closed) throw new IllegalStateException("the store is closed")

  /** The newest version that memory holds. */
  def tip: VersionId = synchronized(versions.head._1)

  /** Begins on that version; None when memory cannot reach it: then restore it and [[reset]]. */
  def tryBegin(at: VersionId, readOnly: Boolean): Option[Transaction] = synchronized {
    check()
    versions.find(_._1 == at).map { case (id, rows) => new Transaction(this, id, readOnly, new TreeMap(rows)) }
  }

  /** Forgets all and starts from this base. */
  def reset(base: BaseDirectory): Unit = synchronized {
    check()
    val rows = newRows()
    val options = new Options
    val db = RocksDB.openReadOnly(options, base.path)
    val it = db.newIterator()
    it.seekToFirst()
    while (it.isValid) {
      val key = it.key
      if (!(key.length >= 2 && key(0) == -1 && key(1) == -1)) rows.put(key, it.value)
      it.next()
    }
    it.close()
    db.close()
    options.close()
    base.onClose()
    versions = List(base.at -> rows)
  }

  /** Forgets all and starts from the empty version 0. */
  def resetEmpty(): Unit = synchronized {
    check()
    versions = List(VersionId.empty -> newRows())
  }

  /** A newer base, holding a version on the way to the tip; taken at a later begin, or closed when it does not fit. */
  def offerBase(base: BaseDirectory): Unit = base.onClose()

  /** Memory is full of versions that no base holds: a merge of kind ingest up to this one would free it. */
  def wantsIngest: Option[VersionId] = None

  def memoryUse: MemoryUse = MemoryUse(0, 0, 0, 0, 0, memory.usedBytes, memory.budgetBytes)

  /** No transaction begins any more; those that are open may end as usual. Any number of times, any thread. */
  def close(): Unit = synchronized { closed = true }

  private[incremental] def append(at: VersionId, as: VersionId, rows: Rows): Unit = synchronized {
    versions = (as -> rows) :: versions.dropWhile(_._1 != at)
  }
}
