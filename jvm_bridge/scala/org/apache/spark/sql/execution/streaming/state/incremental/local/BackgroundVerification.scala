package org.apache.spark.sql.execution.streaming.state.incremental.local

import java.io.IOException
import java.util.concurrent.{Executor, ThreadPoolExecutor, TimeUnit}

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.agent.Supervised
import org.apache.spark.sql.execution.streaming.state.incremental.base.VerifiedStretch
import org.apache.spark.sql.execution.streaming.state.incremental.transaction.StoreVersions
import org.apache.spark.util.ThreadUtils

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
  private var left = List.empty[(String, Long)]

  /** The position in the first of these files: a block, and how many bytes of the file are verified. */
  private var position = VerifiedStretch(0, 0)
  private var counts = VerificationCounters()
  private var isRunning = false

  def counters: VerificationCounters =
    synchronized(counts.copy(leftBytes = math.max(0, left.map(_._2).sum - position.bytes)))

  /**
   * Verifies all files of a restore, and drops those left of another base. Call it after a transaction has begun on the
   * restored base: no transaction begins on a base that is known to be damaged.
   */
  def restored(): Unit = if (bytesPerS > 0) {
    val files = state.withBase(_.unreadFiles).getOrElse(Map.empty).toList
    synchronized {
      left = files
      position = VerifiedStretch(0, 0)
    }
    goOn()
  }

  /** Goes on with the files that are left, or starts with them: a batch has begun, perhaps on another base. */
  def goOn(): Unit = synchronized {
    if (left.nonEmpty && !isRunning) {
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
        synchronized { left = Nil }
        logWarning(s"The restored files of $name are not verified in the background any more", e)
    } finally synchronized { isRunning = false }

  /** Verifies a stretch. Returns true if there is more to do. */
  private def step(): Boolean = {
    val (todo, from) = synchronized((left, position))
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
    if (todo eq left) stretch match {
      case Some(verified) => position = VerifiedStretch(verified.next, position.bytes + verified.bytes)
      case None =>
        left = left.tail
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
