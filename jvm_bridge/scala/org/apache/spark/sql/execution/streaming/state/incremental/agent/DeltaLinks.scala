package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.IOException
import java.nio.ByteBuffer
import java.nio.channels.{ClosedByInterruptException, FileChannel}
import java.nio.file.{Files, Path, StandardOpenOption}
import java.util.Locale
import java.util.concurrent.{CountDownLatch, TimeUnit}
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

/** The commits of a store of which the agent was told, and its last answer. Safe for any thread. */
private[agent] final class ToldCommits(store: String) extends Logging {
  private var last: Option[ToldCommits.Last] = None
  private var forgotten = 0L

  @volatile private var telling = new CountDownLatch(0)

  /** Waits until the agent has answered or failed. */
  def awaited(): ToldCommits = {
    telling.await()
    this
  }

  /** Waits like [[awaited]], but not longer than that. Never throws. */
  def awaitFor(ms: Long): Unit =
    try telling.await(ms, TimeUnit.MILLISECONDS)
    catch { case _: InterruptedException => Thread.currentThread.interrupt() }

  /**
   * Returns the answer to expect for a delta; None if the last answer was not about the version that it builds on: then
   * only the agent can say whether the delta may be stored.
   */
  def before(delta: NewDelta): Option[CommitAnswer] = synchronized(last).collect {
    case ToldCommits.Last(version, answer, atNs)
        if version.number + 1 == delta.version.number && version.id.contains(delta.parent) =>
      answer.next(delta.bytes, TimeUnit.NANOSECONDS.toMillis(System.nanoTime - atNs))
  }

  /** Forgets the last answer: a merge has changed the chain. */
  def forget(): Unit = synchronized {
    forgotten += 1
    last = None
  }

  /** Asks the agent, and keeps its answer about a version. */
  def answered(version: VersionId)(ask: => CommitAnswer): CommitAnswer = {
    val before = synchronized {
      last = None
      forgotten
    }
    val answer = ask
    synchronized { if (forgotten == before) last = Some(ToldCommits.Last(version, answer, System.nanoTime)) }
    answer
  }

  /** Tells the agent of a version that is durable already. If that fails, the agent stores the next delta. */
  def tell(version: VersionId, later: (() => Unit) => Unit)(ask: => CommitAnswer): Unit = {
    val done = new CountDownLatch(1)
    telling = done
    later { () =>
      try answered(version)(ask)
      catch {
        case NonFatal(e) =>
          logInfo(s"The agent did not hear of version ${version.number} of $store, which is durable. It reads the " +
            s"storage at the next commit, and stores the next delta: ${e.getMessage}")
      } finally done.countDown()
    }
  }
}

private object ToldCommits {
  /** The version of the last answer, the answer, and the time at which it came. */
  private final case class Last(version: VersionId, answer: CommitAnswer, atNs: Long)
}
