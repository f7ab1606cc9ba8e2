package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.IOException
import java.nio.channels.ClosedByInterruptException
import java.util.concurrent.atomic.{AtomicBoolean, AtomicInteger}

import org.rocksdb.RocksDBException

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{ColumnFamilies, DeltaMetadata, Reserved, VersionId}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{KeyHash, StoreMemory}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.{Cursor, UnsupportedSstException}

/**
 * A local RocksDB directory that holds all of a store's rows at a version; nobody writes to it any more.
 *
 * @param path     the directory
 * @param version  the version that it holds
 * @param keys     number of keys at that version, the reserved record not counted; -1: as that record says
 * @param onClose  called once, when the data plane has closed it (or never opened it): it may be deleted
 * @param beside   what it is made of, where nobody has opened the database yet
 * @param onDamage called once, when reading it has failed; it must not take long
 */
final case class BaseDirectory(
    path: String,
    version: VersionId,
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
 * @param needsRocksDb whether some table of the database can be read by RocksDB alone. Its files are not opened before
 *                 they are read, so it has to be known from elsewhere
 */
final case class Beside(
    database: VersionId,
    keys: Long,
    deltas: Seq[BesideDelta],
    sparse: Set[String] = Set.empty,
    fetch: (String, Long, Long) => Unit = (_, _, _) => (),
    needsRocksDb: Boolean = false)

/** A delta, as a file of its own. */
final case class BesideDelta(path: String, version: VersionId)

/** That rows cannot be had just now, though nothing is wrong with what is there of the base. */
final class FarRowsException(message: String, cause: Throwable) extends IOException(message, cause)

/** That a base with deltas beside its database cannot be read: RocksDB would have to, and only reads databases. */
final class NeedsDatabaseException(cause: IOException) extends IOException(cause.getMessage, cause)

/** What was verified of a file in one read: the block to go on with, and how many bytes. */
final case class VerifiedStretch(next: Int, bytes: Long)

/**
 * A version of the store in a local RocksDB directory, read only. Shared by counted references: the store's
 * own and one of every open transaction; it is closed, and its directory given back, with the last. Readers
 * are cheap and used by one thread at a time.
 */
private[incremental] abstract class Base(directory: BaseDirectory) {
  private val references = new AtomicInteger(1)
  private val failed = new AtomicBoolean
  private var metadata: DeltaMetadata = _

  final def version: VersionId = directory.version
  final def keys: Long = metadata.keys

  /** The column families of that version. */
  final def families: ColumnFamilies = metadata.families
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

  /**
   * Files that are there as a whole, of which each block is verified when it is first read, and their bytes; none where
   * RocksDB reads them.
   */
  def unreadFiles: Map[String, Long] = Map.empty

  /**
   * Verifies blocks of such a file that nobody has read, from that one on. None: there are no more, or no such file.
   *
   * @throws IOException as a reader does
   */
  def verifyUnread(file: String, from: Int): Option[VerifiedStretch] = None

  /** Throws unless the directory itself says that it is that version with this many keys. */
  private def verify(): Unit = {
    metadata = Base.checkRecord(reader(), directory.path, version, directory.keys)
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
    case e @ (_: FarRowsException | _: UnsupportedSstException) => e
    case e: IOException if TableCache.isOutOfMappings(e) => e // nothing is wrong with the files
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
  def open(directory: BaseDirectory, memory: StoreMemory, tables: TableCache = TableCache.shared): Base =
    try openAsItCan(directory, memory, tables)
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

  /** A table may be mapped only when the reserved record is read. */
  private def openAsItCan(directory: BaseDirectory, memory: StoreMemory, tables: TableCache): Base =
    try {
      if (directory.beside.exists(_.needsRocksDb)) verified(new RocksBase(directory, memory))
      else verified(TableBase.open(directory, tables))
    } catch {
      case e: UnsupportedSstException => byRocks(directory, memory, e)
      case e: IOException if TableCache.isOutOfMappings(e) =>
        logWarning(s"No file of ${directory.path} can be mapped any more; RocksDB reads it, more slowly", e)
        byRocks(directory, memory, e)
    }

  private def byRocks(directory: BaseDirectory, memory: StoreMemory, why: IOException): Base =
    if (directory.beside.exists(one => one.deltas.nonEmpty || one.sparse.nonEmpty)) throw new NeedsDatabaseException(why)
    else verified(new RocksBase(directory, memory))

  /**
   * The reserved record that a reader finds, which is closed.
   *
   * @throws IOException unless it says that it is that version, of this many keys (-1: any number);
   *     an UnknownFormatException when its format is not known
   */
  private[base] def checkRecord(reader: BaseReader, path: String, version: VersionId, keys: Long): DeltaMetadata = {
    val record =
      try reader.get(KeyHash.of(Reserved.metaKey), Reserved.metaKey)
      finally reader.close()
    if (record == null) throw new IOException(s"The local copy of the state in $path lacks the reserved record")
    val found = DeltaMetadata.parse(record, path)
    val foundVersion = if (version.id.isEmpty) found.version.copy(id = None) else found.version
    if (foundVersion != version || found.keys < 0 || keys >= 0 && found.keys != keys) {
      throw new IOException(s"The local copy of the state in $path should be $version with $keys keys, and says that " +
        s"it is $foundVersion with ${if (found.keys < 0) "no number of" else found.keys} keys")
    }
    found
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
