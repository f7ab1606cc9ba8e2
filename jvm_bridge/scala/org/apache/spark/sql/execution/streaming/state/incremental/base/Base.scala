package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.util.concurrent.atomic.AtomicInteger

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.memory.StoreMemory
import org.apache.spark.sql.execution.streaming.state.incremental.sst.{Cursor, UnsupportedSstException}

/**
 * A local RocksDB directory that holds all of a store's rows at a version; nobody writes to it any more.
 *
 * @param path    the directory
 * @param at      the version that it holds
 * @param keys    number of keys at that version, the reserved record not counted
 * @param onClose called once, when the data plane has closed it (or never opened it): it may be deleted
 */
final case class BaseDirectory(path: String, at: VersionId, keys: Long, onClose: () => Unit)

/**
 * A version of the store in a local RocksDB directory, read only. Shared by counted references: the store's
 * own and one of every open transaction; it is closed, and its directory given back, with the last. Readers
 * are cheap and used by one thread at a time.
 */
private[incremental] abstract class Base(directory: BaseDirectory) {
  private val references = new AtomicInteger(1)

  final def at: VersionId = directory.at
  final def keys: Long = directory.keys
  final def retain(): Unit = references.incrementAndGet()

  final def release(): Unit = if (references.decrementAndGet() == 0) {
    try close()
    finally directory.onClose()
  }

  /** Memory that it holds, taken from the budget. */
  def bytes: Long

  def reader(): BaseReader

  protected def close(): Unit
}

private[incremental] object Base {

  /** Opens a directory: memory-mapped where its files allow that, else through RocksDB. */
  def open(directory: BaseDirectory, memory: StoreMemory): Base =
    try TableBase.open(directory)
    catch { case _: UnsupportedSstException => new RocksBase(directory, memory) }
}

/** Looks into a base, for one transaction. */
private[incremental] abstract class BaseReader {

  /** The value of a key whose hash is given, null when absent. */
  def get(hash: Long, key: Array[Byte]): Array[Byte]

  def contains(hash: Long, key: Array[Byte]): Boolean

  /**
   * The rows from a key on, in key order; it may end at until, if that is not null. The reserved record is
   * left out.
   */
  def cursor(from: Array[Byte], until: Array[Byte]): Cursor

  def close(): Unit
}
