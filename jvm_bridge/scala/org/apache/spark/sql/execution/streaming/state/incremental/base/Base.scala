package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.IOException
import java.nio.channels.ClosedByInterruptException
import java.util.concurrent.atomic.{AtomicBoolean, AtomicInteger}

import com.fasterxml.jackson.databind.node.ObjectNode
import org.rocksdb.RocksDBException

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{ColumnFamilies, Json, Reserved, VersionId}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{KeyHash, StoreMemory}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.{Cursor, UnsupportedSstException}

/**
 * A local RocksDB directory that holds all of a store's rows at a version; nobody writes to it any more.
 *
 * @param path     the directory
 * @param at       the version that it holds
 * @param keys     number of keys at that version, the reserved record not counted; -1: as that record says
 * @param onClose  called once, when the data plane has closed it (or never opened it): it may be deleted
 * @param beside   what it is made of, where nobody has opened the database yet
 * @param onDamage called once, when reading it has failed; it must not take long
 */
final case class BaseDirectory(
    path: String,
    at: VersionId,
    keys: Long,
    onClose: () => Unit,
    beside: Option[Beside] = None,
    onDamage: () => Unit = () => ())

/**
 * A database at an older version, which may be none, and the deltas after it.
 *
 * @param database the version of the database; version 0: there is none
 * @param keys     number of keys at that version
 * @param deltas   the newest first
 * @param sparse   files that are not there as a whole, as paths below the directory
 * @param fetch    brings bytes of such a file to their place: its path, offset and length. Any thread; throws an
 *                 IOException
 */
final case class Beside(
    database: VersionId,
    keys: Long,
    deltas: Seq[BesideDelta],
    sparse: Set[String] = Set.empty,
    fetch: (String, Long, Long) => Unit = (_, _, _) => ())

/** A delta, as a file of its own. */
final case class BesideDelta(path: String, at: VersionId)

/** That rows cannot be had just now, though nothing is wrong with what is there of the base. */
final class FarRowsException(message: String, cause: Throwable) extends IOException(message, cause)

/** That a base with deltas beside its database cannot be read: RocksDB would have to, and only reads databases. */
final class NeedsDatabaseException(cause: IOException) extends IOException(cause.getMessage, cause)

/**
 * A version of the store in a local RocksDB directory, read only. Shared by counted references: the store's
 * own and one of every open transaction; it is closed, and its directory given back, with the last. Readers
 * are cheap and used by one thread at a time.
 */
private[incremental] abstract class Base(directory: BaseDirectory) {
  private val references = new AtomicInteger(1)
  private val failed = new AtomicBoolean
  private var record: ObjectNode = _

  final def at: VersionId = directory.at
  final def keys: Long = record.path("keys").asLong

  /** The column families of that version. */
  final def families: ColumnFamilies = ColumnFamilies.fromJson(record.path("column_families"))
  final def retain(): Unit = references.incrementAndGet()

  final def release(): Unit = if (references.decrementAndGet() == 0) {
    try close()
    finally directory.onClose()
  }

  /** Memory that it holds, taken from the budget. */
  def bytes: Long

  def reader(): BaseReader

  /** Whether files of it may not be there as a whole. */
  final def isSparse: Boolean = directory.beside.exists(_.sparse.nonEmpty)

  /** Throws unless the directory itself says that it is that version with so many keys. */
  private def verify(): Unit = {
    record = Base.checkRecord(reader(), directory.path, at, directory.keys)
  }

  /** Whether reading it failed: its rows have to be had from elsewhere. Any thread. */
  final def damaged: Boolean = failed.get

  private def markDamaged(): Unit = if (failed.compareAndSet(false, true)) directory.onDamage()

  /** Notes what reading it ended with. Returns what to throw instead. */
  final def noteFailure(error: Throwable): Throwable = error match {
    case e: InternalError =>
      markDamaged()
      explained(e)
    case e: RocksDBException =>
      markDamaged()
      new IOException(s"The local copy of the state in ${directory.path} cannot be read: ${e.getMessage}", e)
    case e: FarRowsException => e
    case e: ClosedByInterruptException => e // the task was killed; nothing is wrong with the files
    case e: IOException =>
      markDamaged()
      e
    case e => e
  }

  /** What the JVM throws when a page of a mapped file cannot be had, as an exception of the one task that read it. */
  protected def explained(error: InternalError): Throwable =
    new IOException(s"The local copy of the state in ${directory.path} cannot be read: a mapped file failed", error)

  protected def close(): Unit
}

private[incremental] object Base extends Logging {

  /**
   * Opens a directory: memory-mapped where its files and the operating system allow that, else through RocksDB.
   *
   * @throws IOException when it cannot be read, or does not say itself that it holds that version;
   *     [[NeedsDatabaseException]] when it could be, without deltas beside it
   */
  def open(directory: BaseDirectory, memory: StoreMemory): Base =
    try verified(openAsItCan(directory, memory))
    catch {
      case e: RocksDBException =>
        throw new IOException(s"The local copy of the state in ${directory.path} cannot be opened: ${e.getMessage}", e)
    }

  private def verified(base: Base): Base =
    try {
      base.verify()
      base
    } catch {
      case e: Throwable =>
        base.close()
        throw e
    }

  private def openAsItCan(directory: BaseDirectory, memory: StoreMemory): Base =
    try TableBase.open(directory, TableCache.shared)
    catch {
      case e: UnsupportedSstException => byRocks(directory, memory, e)
      case e: IOException if TableCache.isOutOfMappings(e) =>
        logWarning(s"No file of ${directory.path} can be mapped any more; RocksDB reads it, more slowly", e)
        byRocks(directory, memory, e)
    }

  private def byRocks(directory: BaseDirectory, memory: StoreMemory, why: IOException): Base =
    if (directory.beside.exists(one => one.deltas.nonEmpty || one.sparse.nonEmpty)) throw new NeedsDatabaseException(why)
    else new RocksBase(directory, memory)

  /**
   * The reserved record that a reader finds, which is closed.
   *
   * @throws IOException unless it says that it is that version, of so many keys (-1: any number)
   */
  private[base] def checkRecord(reader: BaseReader, path: String, at: VersionId, keys: Long): ObjectNode = {
    val record =
      try reader.get(KeyHash.of(Reserved.metaKey), Reserved.metaKey)
      finally reader.close()
    if (record == null) throw new IOException(s"The local copy of the state in $path lacks the reserved record")
    val says = Json.parse(record)
    val version = VersionId(says.path("version").asLong(-1), at.id.flatMap(_ => Json.text(says, "id")))
    val found = says.path("keys").asLong(-1)
    if (version != at || found < 0 || keys >= 0 && found != keys) {
      throw new IOException(s"The local copy of the state in $path should be $at with $keys keys, and says that " +
        s"it is $version with ${says.path("keys").asText("no number of")} keys")
    }
    says
  }
}

/** Looks into a base, for one transaction. */
private[incremental] abstract class BaseReader {

  /** How many filters of files single keys were looked for in so far, and how many blocks; 0 where RocksDB does it. */
  def filters: Long = 0
  def blocks: Long = 0

  /** The value of a key whose hash is given, null when absent. */
  def get(hash: Long, key: Array[Byte]): Array[Byte]

  def contains(hash: Long, key: Array[Byte]): Boolean

  /** Keys that are going to be asked for: where files are not there as a whole, what they need of them is brought. */
  def expect(keys: Iterable[Array[Byte]]): Unit = ()

  /**
   * The rows from a key on, in key order; it may end at until, if that is not null. The reserved record is
   * left out.
   */
  def cursor(from: Array[Byte], until: Array[Byte]): Cursor

  def close(): Unit
}
