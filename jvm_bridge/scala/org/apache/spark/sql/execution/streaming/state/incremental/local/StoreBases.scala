package org.apache.spark.sql.execution.streaming.state.incremental.local

import java.io.IOException
import java.nio.channels.ClosedByInterruptException
import java.util.concurrent.{Executor, ThreadPoolExecutor, TimeUnit}
import java.util.concurrent.atomic.AtomicLong

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.agent.{
  AgentException, AgentStore, OfferedBase, MergedStore, RangeReads, RestoreAnswer, Supervised
}
import org.apache.spark.sql.execution.streaming.state.incremental.base.{
  BaseDirectory, GoneRowsException, RemoteRowsException, RestoredDelta, RestoredFiles, StoredRanges, VerifiedStretch
}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{
  ColumnFamilies, UnknownFormatException, VersionId
}
import org.apache.spark.sql.execution.streaming.state.incremental.transaction.StoreVersions
import org.apache.spark.util.ThreadUtils

// The bases of a store, from the restore or merge that made them to their release, and the background verification of
// blocks that nobody has read.

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
  def merged(made: MergedStore): BaseDirectory = {
    val isWhole = made.base.sparse.isEmpty && made.base.looseDeltas.isEmpty
    directoryOf(made.version, made.base, isOpened = isWhole)
  }

  /**
   * Restores a version from files whose blocks are verified as they are read. If the files have shown damage, or show
   * it now, all files are verified at once.
   *
   * @param thorough true to verify all files at once
   * @return the answer of the agent, and the column families of the version
   * @throws AgentException if the version cannot be restored
   */
  def restore(
      version: VersionId,
      snapshot: Option[VersionId],
      thorough: Boolean): (RestoreAnswer, ColumnFamilies) = {
    val answer = agent.restore(version, snapshot, thorough)
    answer.warnings.foreach(text => logWarning(s"$name: $text"))
    restored(answer)
    try {
      val families = state.reset(directoryOf(VersionId(version.number, answer.id), answer.base, isOpened = false))
      (answer, families)
    } catch {
      case e: UnknownFormatException => throw AgentException.of(e)
      case e @ (_: ClosedByInterruptException | _: RemoteRowsException | _: GoneRowsException) => throw e
      case e: IOException if !thorough =>
        logWarning(s"The restored files of version ${version.number} of $name cannot be read: verifying all of them", e)
        restore(version, snapshot, thorough = true)
    }
  }

  /** @param isOpened true if the agent has opened the database, which then has the files of the base and no others */
  private def directoryOf(version: VersionId, base: OfferedBase, isOpened: Boolean): BaseDirectory = {
    val deltas = base.looseDeltas.reverse.map { case (delta, path) => RestoredDelta(path, delta) }
    val files = RestoredFiles(base.database, base.keys, deltas, base.sparse, fetch(base.directory, _), base.pageBytes,
      base.pagesAtOnce, storedIn(base.stored))
    BaseDirectory(
      base.directory,
      version,
      keys = if (deltas.isEmpty) base.keys else -1,
      onClose = () => release(base.directory),
      restored = Option.unless(isOpened)(files),
      onDamage = () => reportDamage(base.directory))
  }

  /**
   * Fetches ranges of files: path, offset and length of each. The local files are sound unless a file in storage is
   * damaged.
   */
  private def fetch(directory: String, ranges: Seq[(String, Long, Long)]): Unit = {
    val (file, offset, length) = ranges.head
    val others = if (ranges.size == 1) "" else s" and ${ranges.size - 1} other blocks"
    fetching(s"$length bytes at $offset of $directory/$file$others")(agent.fetch(directory, ranges))
  }

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
        override def readingAhead[A](body: => A): A = reads.readingAhead(body)
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

/** The background verification of a store since its provider was opened, and the bytes that it still has to read. */
final case class VerificationCounters(bytes: Long = 0, leftBytes: Long = 0, damagedFiles: Long = 0) {

  /** Returns the growth since earlier counters of the same store. */
  def since(earlier: VerificationCounters): VerificationCounters =
    copy(bytes = bytes - earlier.bytes, damagedFiles = damagedFiles - earlier.damagedFiles)
}

/**
 * Verifies the blocks of a store's files that a restore has linked or fetched and no batch has read: one after the
 * other, at this many bytes a second over all stores of an executor. If a block is damaged, a message names its
 * file and offset, and the next batch begins with a restore, as after a batch that reads it. If a merge makes a base
 * with the same files, the verification goes on with it. Safe for any thread.
 *
 * @param bytesPerS evaluated after the first restore; 0 verifies nothing
 * @param executor  has one thread
 */
final class BackgroundVerification(
    name: String,
    state: => StoreVersions,
    bytesPerS: => Long,
    executor: => Executor = BackgroundVerification.thread)
    extends Logging {
  private var filesLeft = List.empty[(String, Long)]

  /** The position in the first of these files: a block, and how many bytes of the file are verified. */
  private var position = VerifiedStretch(0, 0)
  private var counts = VerificationCounters()
  private var isRunning = false

  def counters: VerificationCounters =
    synchronized(counts.copy(leftBytes = math.max(0, filesLeft.map(_._2).sum - position.bytes)))

  /**
   * Verifies all files of a restore, and drops those left of another base. Call it after a transaction has begun on the
   * restored base: no transaction begins on a base that is known to be damaged.
   */
  def restored(): Unit = if (bytesPerS > 0) {
    val files = state.withBase(_.unreadFiles).getOrElse(Map.empty).toList
    synchronized {
      filesLeft = files
      position = VerifiedStretch(0, 0)
    }
    goOn()
  }

  /** Goes on with the files that are left, or starts with them: a batch has begun, perhaps on another base. */
  def goOn(): Unit = synchronized {
    if (filesLeft.nonEmpty && !isRunning) {
      isRunning = true
      try executor.execute(() =>
          Supervised.guarded(s"The restored files of $name are verified again with the next batch")(run()))
      catch {
        case e: OutOfMemoryError => // "unable to create native thread": the next batch tries again
          isRunning = false
          logWarning(s"The thread that verifies what was restored of $name cannot be started", e)
      }
    }
  }

  private def run(): Unit =
    try while (step()) {}
    catch {
      case e @ (_: IOException | _: RuntimeException) => // the files may be sound: readers verify the blocks they read
        synchronized { filesLeft = Nil }
        logWarning(s"The restored files of $name are not verified in the background any more", e)
    } finally synchronized { isRunning = false }

  /** Verifies a stretch. Returns true if there is more to do. */
  private def step(): Boolean = {
    val (todo, from) = synchronized((filesLeft, position))
    todo.headOption.exists { case (file, _) =>
      try state.withBase(_.verifyUnread(file, from.next)) match {
          case None => false
          case Some(stretch) =>
            noteVerified(todo, stretch)
            stretch.foreach(verified => BackgroundVerification.pause(verified.bytes, bytesPerS))
            true
        }
      catch {
        case e: IOException if state.isDamaged =>
          noteDamage(e)
          false
      }
    }
  }

  /** @param todo the files that were left at the beginning; a restore may have replaced them meanwhile */
  private def noteVerified(todo: List[(String, Long)], stretch: Option[VerifiedStretch]): Unit = synchronized {
    if (todo eq filesLeft) stretch match {
      case Some(verified) => position = VerifiedStretch(verified.next, position.bytes + verified.bytes)
      case None =>
        filesLeft = filesLeft.tail
        position = VerifiedStretch(0, 0)
    }
    counts = counts.copy(bytes = counts.bytes + stretch.fold(0L)(_.bytes))
  }

  /** Counts a damaged file and leaves it in the list: the base that a merge makes may have the file, too. */
  private def noteDamage(e: IOException): Unit = {
    synchronized { counts = counts.copy(damagedFiles = counts.damagedFiles + 1) }
    logWarning(s"A file of $name is damaged in a block that no batch has read yet; the next batch restores: " +
      e.getMessage)
  }
}

private object BackgroundVerification {
  lazy val thread: ThreadPoolExecutor = ThreadUtils.newDaemonCachedThreadPool("state-store-verification", 1)

  /** Pauses the only reading thread for the time that this many bytes may take. */
  private def pause(bytes: Long, bytesPerS: Long): Unit =
    TimeUnit.NANOSECONDS.sleep(bytes * 1000000000L / bytesPerS)
}
