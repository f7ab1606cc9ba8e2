package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.{InterruptedIOException, IOException}
import java.net.SocketTimeoutException
import java.nio.channels.ClosedByInterruptException
import java.util.concurrent.atomic.{AtomicBoolean, AtomicInteger}

import org.rocksdb.RocksDBException

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{
  ColumnFamilies, DeltaMetadata, Reserved, VersionId
}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{KeyHash, StoreMemory}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.{Cursor, UnsupportedSstException}

/**
 * A local RocksDB directory that holds all rows of a store at a version. Nobody writes to it any more.
 *
 * @param path the directory
 * @param version the version that it holds
 * @param keys number of keys at that version without the reserved record; -1: the number that the record has
 * @param onClose called once, when the data plane has closed the directory or has not opened it: it may be deleted
 * @param restored the files of a restored directory whose database nobody has opened yet
 * @param onDamage called once, when a read of the directory has failed; it must not take long
 */
final case class BaseDirectory(
    path: String,
    version: VersionId,
    keys: Long,
    onClose: () => Unit,
    restored: Option[RestoredFiles] = None,
    onDamage: () => Unit = () => ())

/**
 * A database at an older version, or none, and the deltas after it.
 *
 * @param database the version of the database; version 0: there is none
 * @param keys number of keys at that version
 * @param deltas the newest first
 * @param sparse files of which parts are missing, as paths below the directory
 * @param fetch fetches ranges of such files and writes them into these: path, offset and length of each. Any thread;
 *     throws an IOException
 * @param pageBytes length of the pages of those files that may be evicted at any moment; 0: what was fetched stays
 * @param pagesAtOnce bytes of pages that a call of `fetch` may bring, so that they stay until they are read
 * @param openStored opens the stored files, to be read past the disk; None if there is no such way
 * @param needsRocksDb true if RocksDB alone can read some table of the database. The control plane says so, since the
 *     files are not opened before they are read
 */
final case class RestoredFiles(
    database: VersionId,
    keys: Long,
    deltas: Seq[RestoredDelta],
    sparse: Set[String] = Set.empty,
    fetch: Seq[(String, Long, Long)] => Unit = _ => (),
    needsRocksDb: Boolean = false,
    pageBytes: Int = 0,
    pagesAtOnce: Long = Long.MaxValue,
    openStored: Option[() => StoredRanges] = None) {

  /** Reads a range past the disk, as [[StoredRanges.tryRead]] does; None if there is no such way. */
  private[base] def tryRead(name: String, offset: Long, length: Int): Option[Array[Byte]] = openStored.flatMap { open =>
    val stored = open()
    try stored.tryRead(Seq((name, offset, length))).map(_.head)
    finally stored.close()
  }
}

/** Ranges of stored files, which are read into memory and not to the disk. One thread. */
private[incremental] trait StoredRanges extends AutoCloseable {

  /**
   * Reads ranges: path below the directory of the base, offset and length of each.
   *
   * @return their bytes in the same order
   * @throws IOException if storage fails
   */
  def read(ranges: Seq[(String, Long, Int)]): Seq[Array[Byte]]

  /** Bytes of the base that come to the disk in a second while nothing is read here; None if that is not known. */
  def bulkBytesPerSecond: Option[Long] = None

  /** Has the files that come to the disk in the background give way to the body. */
  def first[A](body: => A): A = body

  override def close(): Unit = ()

  /**
   * Reads ranges, as [[read]] does. Returns None if storage fails: a fetch to the disk then shows the error, or succeeds.
   *
   * @throws ClosedByInterruptException if the thread is interrupted
   */
  final def tryRead(ranges: Seq[(String, Long, Int)]): Option[Seq[Array[Byte]]] =
    try Some(read(ranges))
    catch {
      case e: ClosedByInterruptException => throw e
      case _: SocketTimeoutException => None
      case _: InterruptedException | _: InterruptedIOException =>
        Thread.currentThread.interrupt()
        throw new ClosedByInterruptException
      case _: Exception => None // clients of storage also throw unchecked exceptions
    }
}

/** A delta, as a file of its own. */
final case class RestoredDelta(path: String, version: VersionId)

/** Rows cannot be fetched just now. The local files are not damaged. */
final class RemoteRowsException(message: String, cause: Throwable) extends IOException(message, cause)

/**
 * Rows cannot be fetched any more, since storage has lost their file: a newer snapshot has taken its place. Nothing is
 * damaged; a restore finds the rows.
 */
final class GoneRowsException(message: String, cause: Throwable) extends IOException(message, cause)

/** A base with deltas beside its database has to be read by RocksDB, which reads only databases. */
final class NeedsDatabaseException(cause: IOException) extends IOException(cause.getMessage, cause)

/**
 * The result of a read that verified a stretch of a file.
 *
 * @param next the block to go on with
 * @param bytes number of bytes that were read
 */
final case class VerifiedStretch(next: Int, bytes: Long)

/**
 * A version of the store in a local RocksDB directory, read only. References are counted: the store holds one, and so
 * does each open transaction. The last release closes the base and gives its directory back. Readers are cheap; each is
 * used by one thread at a time.
 */
private[incremental] abstract class Base(directory: BaseDirectory) {
  private val references = new AtomicInteger(1)
  private val failed = new AtomicBoolean
  @volatile private var gone = false
  private var metadata: DeltaMetadata = _

  final def version: VersionId = directory.version
  final def keys: Long = metadata.keys

  /** The column families of that version. */
  final def families: ColumnFamilies = metadata.families

  /** Adds a reference. */
  final def retain(): Unit = references.incrementAndGet()

  /** Drops a reference; the last one closes the base. */
  final def release(): Unit = if (references.decrementAndGet() == 0) {
    try close()
    finally directory.onClose()
  }

  /** Bytes of memory that the base takes from the budget. */
  def bytes: Long

  /**
   * Returns a reader, which the caller closes.
   *
   * @throws IllegalStateException if the base is closed
   */
  def reader(): BaseReader

  /** Returns true if parts of its files may be missing. */
  final def isSparse: Boolean = directory.restored.exists(_.sparse.nonEmpty)

  /**
   * The complete files, each with its length in bytes, whose blocks are verified when they are first read; none if
   * RocksDB reads them.
   */
  def unreadFiles: Map[String, Long] = Map.empty

  /**
   * Verifies unread blocks of a file of [[unreadFiles]], from a block on.
   *
   * @return None if all blocks are verified or there is no such file
   * @throws IOException as a reader does
   */
  def verifyUnread(file: String, from: Int): Option[VerifiedStretch] = None

  /**
   * Checks that the directory's own record has that version and this number of keys.
   *
   * @throws IOException if it does not
   */
  private def verify(): Unit = {
    metadata = Base.checkRecord(reader(), directory.path, version, directory.keys)
  }

  /** Returns true if a read of it found damage. Any thread. */
  final def damaged: Boolean = failed.get

  /** Returns true if a read of it failed for good: its rows have to come from elsewhere. Any thread. */
  final def isOver: Boolean = gone || damaged

  private def markDamaged(): Unit = if (failed.compareAndSet(false, true)) directory.onDamage()

  /**
   * Notes the error with which a read ended.
   *
   * @return the exception to throw instead
   */
  final def noteFailure(error: Throwable): Throwable = error match {
    case e: InternalError =>
      markDamaged()
      explained(e)
    case e: RocksDBException =>
      markDamaged()
      new IOException(s"The local copy of the state in ${directory.path} cannot be read: ${e.getMessage}", e)
    case e @ (_: RemoteRowsException | _: UnsupportedSstException) => e
    case e: GoneRowsException =>
      gone = true
      e
    case e: IOException if TableCache.isOutOfMappings(e) => e // the files are not damaged
    case e: ClosedByInterruptException => e // the task was killed; the files are not damaged
    case e: IOException =>
      markDamaged()
      e
    case e => e
  }

  /**
   * Returns the JVM's error for a page of a mapped file that cannot be read as an exception of the one task that read
   * it.
   */
  protected def explained(error: InternalError): Throwable =
    new IOException(s"The local copy of the state in ${directory.path} cannot be read: a mapped file failed", error)

  protected def close(): Unit
}

private[incremental] object Base extends Logging {

  /**
   * Opens a directory: memory-mapped if its files and the operating system allow that, else through RocksDB.
   *
   * @throws IOException if it cannot be read, or does not say itself that it holds that version;
   *     [[NeedsDatabaseException]] if only the deltas beside the database prevent that RocksDB reads it
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
        try base.close()
        catch { case other: Throwable => e.addSuppressed(other) }
        throw e
    }

  /** Opens the base and reads the reserved record. That read may be the first one that needs a mapping, and fail. */
  private def openAsItCan(directory: BaseDirectory, memory: StoreMemory, tables: TableCache): Base =
    try {
      if (directory.restored.exists(_.needsRocksDb)) verified(new RocksBase(directory, memory))
      else verified(TableBase.open(directory, tables, memory))
    } catch {
      case e: UnsupportedSstException => byRocks(directory, memory, e)
      case e: IOException if TableCache.isOutOfMappings(e) =>
        logWarning(s"No file of ${directory.path} can be mapped any more; RocksDB reads it, more slowly", e)
        byRocks(directory, memory, e)
    }

  private def byRocks(directory: BaseDirectory, memory: StoreMemory, why: IOException): Base =
    if (directory.restored.exists(files => files.deltas.nonEmpty || files.sparse.nonEmpty))
      throw new NeedsDatabaseException(why)
    else verified(new RocksBase(directory, memory))

  /**
   * Returns the reserved record, read by a reader that is closed afterwards.
   *
   * @param keys number of keys that the record must have; -1: any number
   * @throws IOException if the record is missing or has another version or number of keys; an UnknownFormatException if
   *     its format is not known
   */
  private[base] def checkRecord(reader: BaseReader, path: String, version: VersionId, keys: Long): DeltaMetadata = {
    val record =
      try reader.get(KeyHash.of(Reserved.metaKey), Reserved.metaKey)
      finally reader.close()
    if (record == null) throw new IOException(s"The local copy of the state in $path lacks the reserved record")
    val found = DeltaMetadata.parse(record, path)
    val foundVersion = if (version.id.isEmpty) found.version.copy(id = None) else found.version
    if (foundVersion != version || found.keys < 0 || keys >= 0 && found.keys != keys) {
      throw new IOException(
        s"The local copy of the state in $path should be $version with $keys keys, and its record says " +
          s"that it is $foundVersion with ${if (found.keys < 0) "no number of" else found.keys} keys")
    }
    found
  }
}

/**
 * Reads a base for one transaction. One thread at a time. Methods throw an IOException if the files cannot be read, and
 * IllegalStateException after [[close]].
 */
private[incremental] abstract class BaseReader {

  /** Numbers of filters and of blocks that look-ups of single keys have read so far; 0 if RocksDB reads. */
  def filters: Long = 0
  def blocks: Long = 0

  /** The number of blocks that were fetched because of [[expect]]. */
  def blocksAhead: Long = 0

  /**
   * Returns the value of a key, or null if it is absent.
   *
   * @param hash the key's [[KeyHash]]
   */
  def get(hash: Long, key: Array[Byte]): Array[Byte]

  /** Returns true if the key is there. */
  def contains(hash: Long, key: Array[Byte]): Boolean

  /** Announces keys that will be looked up, so that the missing blocks that they need are fetched together. */
  def expect(keys: Iterable[Array[Byte]]): Unit = ()

  /** Takes over the rows that another reader of the same base has read ahead. Nobody uses that one meanwhile. */
  def inherit(from: BaseReader): Unit = ()

  /**
   * Returns the rows from a key on, in key order, without the reserved record. The cursor may end at `until` if that is
   * not null.
   */
  def cursor(from: Array[Byte], until: Array[Byte]): Cursor

  /** Closes the reader and its cursors. */
  def close(): Unit
}
