package org.apache.spark.sql.execution.streaming.state.incremental.local

import java.io.IOException
import java.nio.channels.ClosedByInterruptException
import java.util.concurrent.atomic.AtomicLong

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.agent.{
  AgentException, AgentStore, MergedStore, RangeReads, RestoreAnswer
}
import org.apache.spark.sql.execution.streaming.state.incremental.base.{
  BaseDirectory, GoneRowsException, NeedsDatabaseException, RemoteRowsException, RestoredDelta, RestoredFiles,
  StoredRanges
}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{
  ColumnFamilies, UnknownFormatException, VersionId
}
import org.apache.spark.sql.execution.streaming.state.incremental.transaction.StoreVersions

/**
 * The bases of one store: directories that the agent restored or merged, which the data plane opens and gives back.
 *
 * @param state    evaluated when a base is opened
 * @param restored called with each answer of the agent to a restore, before its files are opened
 */
private[local] final class StoreBases(
    name: String,
    agent: AgentStore,
    state: => StoreVersions,
    restored: RestoreAnswer => Unit)
    extends Logging {
  private val damages = new AtomicLong

  /** Returns the directory that a merge made, as a base. */
  def merged(made: MergedStore): BaseDirectory =
    if (made.sparse.isEmpty && made.looseDeltas.isEmpty)
      BaseDirectory(made.directory, made.version, made.keys, () => release(made.directory),
        onDamage = () => reportDamage(made.directory))
    else withLooseDeltas(made.directory, made.version, made.keys, made.looseDeltas,
      deltas =>
        RestoredFiles(made.database, made.keys, deltas, made.sparse, fetch(made.directory, _, _, _),
          pageBytes = made.pageBytes, pagesAtOnce = made.pagesAtOnce, fetchAll = fetchAll(made.directory, _),
          openStored = storedIn(made.stored)))

  /**
   * Restores a version from files whose blocks are verified as they are read. If the files have shown damage, or show
   * it now, all files are verified at once.
   *
   * @param thorough true to verify all files at once
   * @param ingest true if RocksDB has to read the deltas
   * @return the answer of the agent, and the column families of the version
   * @throws AgentException if the version cannot be restored
   */
  def restore(
      version: VersionId,
      snapshot: Option[VersionId],
      thorough: Boolean,
      ingest: Boolean = false): (RestoreAnswer, ColumnFamilies) = {
    val answer = agent.restore(version, snapshot, thorough, ingest)
    answer.warnings.foreach(text => logWarning(s"$name: $text"))
    restored(answer)
    try {
      val families = state.reset(directoryOf(VersionId(version.number, answer.id), answer))
      (answer, families)
    } catch {
      case e: UnknownFormatException => throw AgentException.of(e)
      case _: NeedsDatabaseException if !ingest => restore(version, snapshot, thorough, ingest = true)
      case e @ (_: ClosedByInterruptException | _: RemoteRowsException | _: GoneRowsException) => throw e
      case e: IOException if !thorough =>
        logWarning(s"The restored files of version ${version.number} of $name cannot be read: verifying all of them", e)
        restore(version, snapshot, thorough = true, ingest)
    }
  }

  private def directoryOf(version: VersionId, answer: RestoreAnswer): BaseDirectory =
    withLooseDeltas(answer.directory, version, answer.keys, answer.looseDeltas,
      deltas =>
        RestoredFiles(answer.base, answer.keys, deltas, answer.sparse, fetch(answer.directory, _, _, _),
          answer.needsRocksDb,
          answer.pageBytes,
          answer.pagesAtOnce,
          fetchAll(answer.directory, _),
          storedIn(answer.stored)))

  private def withLooseDeltas(
      directory: String,
      version: VersionId,
      keys: Long,
      oldestFirst: Seq[(VersionId, String)],
      files: Seq[RestoredDelta] => RestoredFiles): BaseDirectory = {
    val deltas = oldestFirst.reverse.map { case (delta, path) => RestoredDelta(path, delta) }
    BaseDirectory(
      directory,
      version,
      keys = if (deltas.isEmpty) keys else -1,
      onClose = () => release(directory),
      restored = Some(files(deltas)),
      onDamage = () => reportDamage(directory))
  }

  /** Fetches bytes of a file. The local files are sound unless the file in storage is damaged. */
  private def fetch(directory: String, file: String, offset: Long, length: Long): Unit =
    fetching(s"$length bytes at $offset of $directory/$file")(
      agent.fetch(directory, file, offset, length))

  /** Fetches ranges of files, as [[fetch]] does: path, offset and length of each. */
  private def fetchAll(directory: String, ranges: Seq[(String, Long, Long)]): Unit =
    fetching(s"${ranges.size} blocks of $directory")(agent.fetchAll(directory, ranges))

  /** Returns what opens files in storage by their path below the directory; None if no path in storage is known. */
  private def storedIn(paths: Map[String, String]): Option[() => StoredRanges] =
    Option.when(paths.nonEmpty) { () =>
      val reads: RangeReads = agent.rangeReads()
      new StoredRanges {
        def read(ranges: Seq[(String, Long, Int)]): Seq[Array[Byte]] = {
          val bytes = reads.read(ranges.map { case (name, offset, length) => (paths(name), offset, length) })
          agent.noteRead(bytes.iterator.map(_.length.toLong).sum)
          bytes
        }
        override def bulkBytesPerSecond: Option[Long] = reads.bulkBytesPerSecond
        override def first[A](body: => A): A = reads.first(body)
        override def close(): Unit = reads.close()
      }
    }

  private def fetching(bytes: => String)(call: => Unit): Unit =
    try call
    catch {
      case e: AgentException =>
        val message = s"$bytes, which was restored in part, cannot be read: ${e.getMessage}"
        throw e.kind match {
          case "damaged" => new IOException(message, e)
          case "missing" =>
            new GoneRowsException(s"$message. The next attempt restores from what has taken its place", e)
          case _ => new RemoteRowsException(message, e)
        }
    }

  /** Releases a directory in another thread: the caller may hold a lock, and the agent may hang. */
  private def release(directory: String): Unit =
    LocalStore.later(() => agent.release(directory))

  /** Returns the number of bases in which a batch or the background verification found a damaged block. */
  def damaged: Long = damages.get

  /** Reports damage in another thread: the thread that found it may be interrupted at any time. */
  private def reportDamage(directory: String): Unit = {
    damages.incrementAndGet()
    LocalStore.later(() => agent.foundDamage(directory))
  }
}
