package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.IOException
import java.nio.ByteBuffer
import java.nio.channels.{ClosedByInterruptException, FileChannel}
import java.nio.file.{Files, Path, StandardOpenOption}
import java.util.{ArrayDeque, Locale}
import java.util.concurrent.TimeUnit
import java.util.zip.CRC32

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId

// Commits without the agent's answer: the delta is stored here, and the agent hears of it afterwards.

/**
 * A delta of this executor that becomes a version.
 *
 * @param parent the parent that the delta names
 * @param seen the attempts in storage when this attempt started; None with Spark's ids
 * @param memoryShort true to ask for a merge that gives memory back
 */
final case class NewDelta(
    version: VersionId,
    parent: String,
    seen: Option[SeenAttempts],
    path: Path,
    bytes: Long,
    crc: Long,
    keys: Long,
    memoryShort: Boolean) {

  /** The name in checkpoint storage, as docs/format.md has it. */
  def name: String = "%020d_%s_%s_%08x.sst".formatLocal(Locale.ROOT, version.number, version.id.get, parent, crc)
}

/**
 * Stores deltas in a directory of this machine as the agent does: compares the file with its checksum, syncs it, links
 * it under its name and syncs the directory. For any thread.
 *
 * @param directory the directory in checkpoint storage, which may not exist yet
 */
private[agent] final class DeltaLinks(directory: Path) extends Logging {
  @volatile private var isPossible = true

  /**
   * Stores a delta durably. After a failure the directory is left to the agent, which knows storage without links, and
   * says what to do about an error.
   *
   * @return false if the delta may not be in storage, or not durably: then the agent has to store it
   * @throws AgentException if the disk did not take the bytes of the delta. The system reports that once: the agent
   *   would sync the same file without an error, and take it for durable
   */
  def store(delta: NewDelta): Boolean = isPossible && {
    try {
      storeOrFail(delta)
      true
    } catch {
      case _: ClosedByInterruptException => false // Spark kills the task
      case e @ (_: IOException | _: UnsupportedOperationException) =>
        isPossible = false
        logInfo(s"From now on the agent stores the deltas in $directory, because this JVM could not: $e")
        false
    }
  }

  private def storeOrFail(delta: NewDelta): Unit = {
    val file = FileChannel.open(delta.path, StandardOpenOption.READ)
    try {
      val crc = DeltaLinks.crc32(file)
      if (file.size != delta.bytes || crc != delta.crc) throw new IOException(s"${delta.path} was changed")
      try file.force(true)
      catch {
        case e: IOException if !e.isInstanceOf[ClosedByInterruptException] =>
          throw AgentException.ofLocalDisk(delta.path.toString, e)
      }
    } finally file.close()
    Files.createLink(directory.resolve(delta.name), delta.path)
    val names = FileChannel.open(directory, StandardOpenOption.READ)
    try names.force(true)
    finally names.close()
  }
}

private object DeltaLinks {
  private val BufferBytes = 256 << 10

  private def crc32(file: FileChannel): Long = {
    val crc = new CRC32
    val buffer = ByteBuffer.allocate(math.min(BufferBytes.toLong, math.max(1L, file.size)).toInt)
    while (file.read(buffer) >= 0) {
      buffer.flip()
      crc.update(buffer)
      buffer.clear()
    }
    crc.getValue
  }
}

/**
 * The commits of a store of which the agent hears after they are durable, in their order, and the newest answer about
 * the store. A commit does not wait for the agent's answer about those before, since nothing that the agent answers
 * changes a version that is durable; every other call does. Safe for any thread.
 */
private[agent] final class ToldCommits(store: String) extends Logging {
  private var last: Option[ToldCommits.Last] = None

  /** The commits that the agent has not answered yet, oldest first: it is told of the first now. */
  private val untold = new ArrayDeque[ToldCommits.Untold]

  /** Bytes of the deltas that were stored here since the agent stored one, newest last, as far as they are kept. */
  private var stored = Vector.empty[Long]
  private var merges = 0L

  /** Waits until the agent has answered or failed, for each commit. */
  def awaited(): ToldCommits = awaitedBut(0)

  /** Waits like [[awaited]], but not for that many of the newest commits. */
  def awaitedBut(newest: Int): ToldCommits = synchronized {
    while (untold.size > newest) wait()
    this
  }

  /** Waits like [[awaited]], but not longer than that. Never throws. */
  def awaitFor(ms: Long): Unit = synchronized {
    val endNs = System.nanoTime + TimeUnit.MILLISECONDS.toNanos(ms)
    def leftNs = endNs - System.nanoTime
    try while (!untold.isEmpty && leftNs > 0) TimeUnit.NANOSECONDS.timedWait(this, leftNs)
    catch { case _: InterruptedException => Thread.currentThread.interrupt() }
  }

  /**
   * Returns the answer to expect for a delta; None if the newest version that the agent knows, or hears of next, is not
   * the one that it builds on: then only the agent can say whether the delta may be stored.
   */
  def before(delta: NewDelta): Option[CommitAnswer] = synchronized(last).collect {
    case ToldCommits.Last(version, answer, atNs)
        if version.number + 1 == delta.version.number && version.id.contains(delta.parent) =>
      answer.next(delta.bytes, TimeUnit.NANOSECONDS.toMillis(System.nanoTime - atNs))
  }

  /** Brings the figures of the newest answer up to date: a merge has changed the chain. */
  def merged(event: MergeEnded): Unit = synchronized {
    merges += 1
    last = last.flatMap(_.after(event, stored))
  }

  /** Asks the agent to store a version, and keeps its answer. Call [[awaited]] before. */
  def answered(version: VersionId)(ask: => CommitAnswer): CommitAnswer = {
    val before = synchronized {
      last = None
      stored = Vector.empty
      merges
    }
    val answer = ask
    synchronized { if (merges == before) last = Some(ToldCommits.Last(version, answer, System.nanoTime)) }
    answer
  }

  /**
   * Tells the agent of a delta that is durable already, after those before. If that fails, the agent stores the next.
   *
   * @param expected the answer that [[before]] has returned
   */
  def tell(delta: NewDelta, expected: CommitAnswer, later: (() => Unit) => Unit)(ask: => CommitAnswer): Unit = {
    val isFirst = synchronized {
      last = Some(ToldCommits.Last(delta.version, expected, System.nanoTime))
      stored = (stored :+ delta.bytes).takeRight(ToldCommits.Kept)
      untold.add(ToldCommits.Untold(delta.version, () => ask))
      untold.size == 1
    }
    if (isFirst) later(() => tellAll())
  }

  private def tellAll(): Unit =
    try while (hear(synchronized(untold.peek()))) ()
    catch {
      case e: Throwable => // the agent reads the storage at the next commit
        synchronized {
          last = None
          untold.clear()
          notifyAll()
        }
        throw e
    }

  /** Tells the agent of the first untold commit; returns true if there are others. */
  private def hear(commit: ToldCommits.Untold): Boolean = {
    val before = synchronized(merges)
    val answer =
      try Some(commit.ask())
      catch {
        case NonFatal(e) =>
          logInfo(s"The agent did not hear of version ${commit.version.number} of $store, which is durable. It " +
            s"reads the storage at the next commit, and stores the next delta: ${e.getMessage}")
          None
      }
    synchronized {
      if (answer.isEmpty) last = None
      else if (untold.size == 1 && merges == before) {
        last = answer.map(ToldCommits.Last(commit.version, _, System.nanoTime))
      }
      untold.poll()
      notifyAll()
      !untold.isEmpty
    }
  }
}

private object ToldCommits {
  /** The most versions after a merge whose deltas can be added to the figures of its chain. */
  private val Kept = 64

  /** A commit of which the agent has to hear. */
  private final case class Untold(version: VersionId, ask: () => CommitAnswer)

  /** The newest version, the answer about it, and the time at which that came. */
  private final case class Last(version: VersionId, answer: CommitAnswer, atNs: Long) {

    /**
     * Returns the answer with the chain after a merge; None if its figures cannot be told. The chain of the event ends
     * at the version that the agent had heard of by then.
     *
     * @param stored bytes of the newest deltas, newest last
     */
    def after(event: MergeEnded, stored: Vector[Long]): Option[Last] = {
      val chain = event.merged.chain
      chain.snapshotVersion match {
        case snapshot if snapshot == answer.chain.snapshotVersion => Some(this) // of kind `ingest`, or known already
        case None => None
        case Some(snapshot) =>
          val later = version.number - snapshot - chain.deltas
          if (later < 0 || later > stored.size) None
          else {
            val at = answer.copy(chain = chain, predictedRestoreMs = event.predictedRestoreMs, ages = event.ages)
            Some(Last(version, stored.takeRight(later.toInt).foldLeft(at)(_.next(_, 0)), System.nanoTime))
          }
      }
    }
  }
}
