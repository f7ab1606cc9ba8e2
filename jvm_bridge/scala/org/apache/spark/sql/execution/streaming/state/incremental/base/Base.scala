package org.apache.spark.sql.execution.streaming.state.incremental.base

import java.io.{InterruptedIOException, IOException}
import java.net.SocketTimeoutException
import java.nio.channels.ClosedByInterruptException
import java.util.concurrent.atomic.{AtomicBoolean, AtomicInteger}

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{
  ColumnFamilies, DeltaMetadata, Reserved, VersionId
}
import org.apache.spark.sql.execution.streaming.state.incremental.memory.{KeyHash, StoreMemory}
import org.apache.spark.sql.execution.streaming.state.incremental.sst.{DamagedSstException, UnsupportedSstException}

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
 */
final case class RestoredFiles(
    database: VersionId,
    keys: Long,
    deltas: Seq[RestoredDelta],
    sparse: Set[String] = Set.empty,
    fetch: Seq[(String, Long, Long)] => Unit = _ => (),
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
  def readingAhead[A](body: => A): A = body

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

/**
 * The result of a read that verified a stretch of a file.
 *
 * @param next the block to go on with
 * @param bytes number of bytes that were read
 */
final case class VerifiedStretch(next: Int, bytes: Long)

/**
 * A version of the store in a local RocksDB directory, read only and without native calls. References are counted: the
 * store holds one, and so does each open transaction. The last release closes the base and gives its directory back.
 * Readers are cheap; each is used by one thread at a time. The operating system keeps or drops the pages of mapped
 * files: they take nothing from the budget.
 *
 * @param runs files that may have a key, newest first: each file of level 0 by itself, then each level with its files
 *     in key order
 */
private[incremental] final class Base private (
    directory: BaseDirectory,
    runs: Array[Array[LevelFile]],
    memory: StoreMemory) {
  private val references = new AtomicInteger(1)
  private val failed = new AtomicBoolean
  @volatile private var gone = false
  private var metadata: DeltaMetadata = _

  def version: VersionId = directory.version
  def keys: Long = metadata.keys

  /** The column families of that version. */
  def families: ColumnFamilies = metadata.families

  /** Adds a reference. */
  def retain(): Unit = references.incrementAndGet()

  /** Drops a reference; the last one closes the base. */
  def release(): Unit = if (references.decrementAndGet() == 0) {
    try close()
    finally directory.onClose()
  }

  /** Bytes of memory that the base takes from the budget: compressed indexes. */
  def bytes: Long = runs.iterator.flatten.map(_.table.bytes).sum

  /** Returns a reader, which the caller closes. It throws an IllegalStateException if the base is closed. */
  def reader(): BaseReader =
    new BaseReader(runs, noteFailure, directory.restored.filter(_.sparse.nonEmpty), memory)

  /** Returns true if parts of its files may be missing. */
  def isSparse: Boolean = directory.restored.exists(_.sparse.nonEmpty)

  /** The complete files by name. A sparse file is verified when its last bytes are fetched. */
  private lazy val completeFiles: Map[String, LevelFile] =
    runs.iterator.flatten.filterNot(_.table.isSparse).map(file => file.table.file.getName -> file).toMap

  /** The complete files, each with its length in bytes, whose blocks are verified when they are first read. */
  def unreadFiles: Map[String, Long] = completeFiles.map { case (name, file) => name -> file.bytes }

  /**
   * Verifies unread blocks of a file of [[unreadFiles]], from a block on.
   *
   * @return None if all blocks are verified or there is no such file
   * @throws IOException as a reader does
   */
  def verifyUnread(file: String, from: Int): Option[VerifiedStretch] =
    completeFiles.get(file).flatMap { levelFile =>
      try {
        val held = levelFile.table.hold()
        try held.verifyUnread(from).map { case (next, bytes) => VerifiedStretch(next, bytes) }
        finally levelFile.table.release()
      } catch { case e @ (_: DamagedSstException | _: InternalError) => throw noteFailure(e) }
    }

  /**
   * Checks that the directory's own record has that version and this number of keys.
   *
   * @throws IOException if it does not
   */
  private def verify(): Unit = {
    metadata = Base.checkRecord(reader(), directory.path, version, directory.keys)
  }

  /** Returns true if a read of it found damage. Any thread. */
  def damaged: Boolean = failed.get

  /** Returns true if a read of it failed for good: its rows have to come from elsewhere. Any thread. */
  def isOver: Boolean = gone || damaged

  private def markDamaged(): Unit = if (failed.compareAndSet(false, true)) directory.onDamage()

  /**
   * Notes the error with which a read ended.
   *
   * @return the exception to throw instead
   */
  def noteFailure(error: Throwable): Throwable = error match {
    case e: InternalError =>
      markDamaged()
      explained(e)
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
   * it. The operating system does not say which file failed, so the files' lengths are compared.
   */
  private def explained(error: InternalError): Throwable =
    runs.iterator.flatten.find(_.isCutOff).map(_.cutOff(error)).getOrElse(
      new IOException(s"The local copy of the state in ${directory.path} cannot be read: a mapped file failed", error))

  private def close(): Unit = runs.foreach(_.foreach(_.table.drop()))
}

private[incremental] object Base {

  /**
   * Opens a directory, whose files are mapped if the operating system allows that.
   *
   * @throws IOException if it cannot be read, or does not say itself that it holds that version; an
   *     [[UnsupportedSstException]] if a file is of a kind that this store does not write
   */
  def open(directory: BaseDirectory, memory: StoreMemory, tables: TableCache = TableCache.shared): Base = {
    val base = new Base(directory, new BaseOpening(directory, tables, memory).open().toArray, memory)
    try {
      base.verify()
      base
    } catch {
      case e: Throwable =>
        try base.close()
        catch { case other: Throwable => e.addSuppressed(other) }
        throw e
    }
  }

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
    val metadata = DeltaMetadata.parse(record, path)
    val foundVersion = if (version.id.isEmpty) metadata.version.copy(id = None) else metadata.version
    if (foundVersion != version || metadata.keys < 0 || keys >= 0 && metadata.keys != keys) {
      throw new IOException(
        s"The local copy of the state in $path should be $version with $keys keys, and its record says " +
          s"that it is $foundVersion with ${if (metadata.keys < 0) "no number of" else metadata.keys} keys")
    }
    metadata
  }
}
