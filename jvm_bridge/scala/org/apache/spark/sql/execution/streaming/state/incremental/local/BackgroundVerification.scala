package org.apache.spark.sql.execution.streaming.state.incremental.local

import java.io.IOException
import java.util.concurrent.{ThreadPoolExecutor, TimeUnit}

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.base.VerifiedStretch
import org.apache.spark.sql.execution.streaming.state.incremental.transaction.StoreVersions
import org.apache.spark.util.ThreadUtils

/** What was verified of a store in the background since its provider was opened, and what is still to be read. */
final case class VerificationCounters(bytes: Long = 0, leftBytes: Long = 0, damagedFiles: Long = 0) {

  /** What came on top of earlier counters of the same store. */
  def since(earlier: VerificationCounters): VerificationCounters =
    copy(bytes = bytes - earlier.bytes, damagedFiles = damagedFiles - earlier.damagedFiles)
}

/**
 * Verifies the blocks of a store's files that a restore has linked or fetched and no batch has read: one after the
 * other, at this many bytes a second over all stores of an executor. A damaged block is named with its file and offset,
 * and the next batch begins with a restore, as where a batch has read it. A merge's base is gone on with where it has
 * the same files. Any thread.
 *
 * @param bytesPerS asked after the first restore; 0: nothing is verified
 */
final class BackgroundVerification(name: String, state: => StoreVersions, bytesPerS: => Long) extends Logging {
  private var left = List.empty[(String, Long)]

  /** Where the first of those goes on: a block, and how many bytes of it are verified. */
  private var position = VerifiedStretch(0, 0)
  private var counts = VerificationCounters()
  private var isRunning = false

  def counters: VerificationCounters =
    synchronized(counts.copy(leftBytes = math.max(0, left.map(_._2).sum - position.bytes)))

  /**
   * A transaction has begun on what a restore has made: all of it is to be verified, whatever was left of another base.
   * Not before it has begun: on a base that is known to be damaged none does.
   */
  def restored(): Unit = if (bytesPerS > 0) {
    val files = state.withBase(_.unreadFiles).getOrElse(Map.empty).toList
    synchronized {
      left = files
      position = VerifiedStretch(0, 0)
    }
    goOn()
  }

  /** Starts it, or goes on with what is left; a batch has begun, perhaps on another base. */
  def goOn(): Unit = synchronized {
    if (left.nonEmpty && !isRunning) {
      isRunning = true
      BackgroundVerification.thread.execute(() => run())
    }
  }

  private def run(): Unit =
    try while (step()) {}
    catch {
      case e @ (_: IOException | _: RuntimeException) => // nothing is known to be wrong: readers verify what they read
        synchronized { left = Nil }
        logWarning(s"What was restored of $name is not verified in the background any more", e)
    } finally synchronized { isRunning = false }

  /** Verifies a stretch. Whether there is more to do. */
  private def step(): Boolean = {
    val (todo, from) = synchronized((left, position))
    todo.headOption.exists { case (file, _) =>
      try state.withBase(_.verifyUnread(file, from.next)) match {
        case None => false
        case Some(stretch) =>
          noteVerified(todo, stretch)
          stretch.foreach(one => BackgroundVerification.pause(one.bytes, bytesPerS))
          true
      } catch {
        case e: IOException if state.isDamaged =>
          noteDamage(e)
          false
      }
    }
  }

  /** @param todo what was left when it began; a restore may have come between */
  private def noteVerified(todo: List[(String, Long)], stretch: Option[VerifiedStretch]): Unit = synchronized {
    if (todo eq left) stretch match {
      case Some(one) => position = VerifiedStretch(one.next, position.bytes + one.bytes)
      case None =>
        left = left.tail
        position = VerifiedStretch(0, 0)
    }
    counts = counts.copy(bytes = counts.bytes + stretch.fold(0L)(_.bytes))
  }

  /** The file stays among those that are left: the base that a merge makes may have it, too. */
  private def noteDamage(e: IOException): Unit = {
    synchronized { counts = counts.copy(damagedFiles = counts.damagedFiles + 1) }
    logWarning(s"A file of $name is damaged where no batch has read it yet; the next one restores: ${e.getMessage}")
  }
}

private object BackgroundVerification {
  lazy val thread: ThreadPoolExecutor = ThreadUtils.newDaemonCachedThreadPool("state-store-verification", 1)

  /** In the one thread that reads: as long as this many bytes may take. */
  private def pause(bytes: Long, bytesPerS: Long): Unit =
    TimeUnit.NANOSECONDS.sleep(bytes * 1000000000L / bytesPerS)
}
