package org.apache.spark.sql.execution.streaming.state.incremental.local

import java.util.UUID

import org.apache.spark.sql.execution.streaming.state.incremental.agent.{AgentStore, SeenAttempts}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.VersionId
import org.apache.spark.sql.execution.streaming.state.incremental.settings.Declarations

/**
 * The task that opens a store.
 *
 * @param application 8 hexadecimal digits that stand for the Spark application
 * @param number Spark's task attempt id, which grows with each task that the application launches
 * @param again whether Spark has launched a task for the same partition of the same job before
 */
final case class TaskAttempt(application: String, number: Long, again: Boolean)

/**
 * From where an attempt at the version after `version` starts.
 *
 * @param parent what its delta is to name as its parent
 * @param seen what storage had above `version` then; None where Spark gives ids, or nobody has asked yet
 */
final case class AttemptStart(
    version: VersionId,
    parent: String,
    task: Option[TaskAttempt] = None,
    seen: Option[SeenAttempts] = None)

object AttemptStart {
  def on(version: VersionId, task: Option[TaskAttempt], seen: Option[SeenAttempts]): AttemptStart =
    AttemptStart(version, if (version.number == 0) Declarations.emptyParent else idOf(version), task, seen)

  /** On nothing, whatever its number. */
  def onNothing(version: VersionId): AttemptStart = AttemptStart(version, Declarations.emptyParent)

  private def idOf(version: VersionId): String =
    version.id.getOrElse(throw new IllegalStateException(s"version ${version.number} has no id to build on"))
}

/** Ids of the versions that an executor makes, and which of them Spark means. Safe for any thread. */
sealed trait Attempts {
  /** The version that memory may have under this name; None where storage has to say which one it is. */
  def known(version: VersionId): Option[VersionId]

  /** An attempt starts in memory. May call the agent. */
  def start(version: VersionId, task: Option[TaskAttempt], readOnly: Boolean): AttemptStart

  /** The version that an attempt is about to commit. */
  def next(start: AttemptStart): VersionId

  /** That version came from storage, which had this above it. */
  def restored(version: VersionId, seen: SeenAttempts): Unit = ()

  /** That version was committed here; storage had this above it afterwards. */
  def committed(version: VersionId, seen: SeenAttempts): Unit = ()

  /** The task that had committed that version failed: Spark does not take it. */
  def failed(version: VersionId): Unit = ()

  /** The commit of that version failed, though its delta may be in storage. Spark does not take it. */
  def uncertain(version: VersionId): Unit = ()

  /** A commit was refused: what memory has may not be what Spark has taken. */
  def refused(): Unit = ()

  /** No transaction begins in memory on a version with a lower number any more. */
  def forgetBefore(number: Long): Unit = ()
}

/** Spark says which attempt it means (checkpoint format 2). */
private[local] final class SparksAttempts extends Attempts {
  override def known(version: VersionId): Option[VersionId] = Some(version)

  override def start(version: VersionId, task: Option[TaskAttempt], readOnly: Boolean): AttemptStart =
    AttemptStart.on(version, task, None)

  override def next(start: AttemptStart): VersionId =
    VersionId(start.version.number + 1, Some(UUID.randomUUID.toString))
}

/**
 * Spark names versions by their numbers alone (checkpoint format 1): ids are made here, as the control plane
 * reads them (state_store/core/checkpoint/attempts.py). A number stands for what was committed or restored under it
 * last, unless the task failed.
 *
 * An attempt has to know what was in storage when it started, or earlier. The answer to the last commit or
 * restore tells; storage is asked where others may have been at work since.
 */
private[local] final class NumberedAttempts(agent: AgentStore) extends Attempts {
  private var taken = Map.empty[Long, VersionId]
  private var newest: Option[(VersionId, SeenAttempts)] = None
  private var tried = 0L

  override def known(version: VersionId): Option[VersionId] =
    if (version.number == 0 || version.id.isDefined) Some(version) else synchronized(taken.get(version.number))

  override def start(version: VersionId, task: Option[TaskAttempt], readOnly: Boolean): AttemptStart = {
    val seen =
      if (readOnly && task.isEmpty) None
      else Some(upToDate(version, task).getOrElse(agent.attempts(version.number)))
    AttemptStart.on(version, task, seen)
  }

  private def upToDate(version: VersionId, task: Option[TaskAttempt]): Option[SeenAttempts] = synchronized {
    val first = task.exists(!_.again) && version.number + 1 > tried
    newest.collect { case (latest, seen) if first && latest == version => seen }
  }

  override def next(start: AttemptStart): VersionId = {
    val number = start.version.number + 1
    synchronized { tried = math.max(tried, number) }
    val task = start.task.getOrElse(NumberedAttempts.noTask)
    val unique = UUID.randomUUID.toString.take(NumberedAttempts.Digits)
    VersionId(number, Some(s"a${start.seen.fold(0L)(_.ordinal)}-${task.application}-${task.number}-$unique"))
  }

  // A version that a reader asked for by an id of Spark's is not what its number stands for.
  override def restored(version: VersionId, seen: SeenAttempts): Unit =
    if (version.id.forall(_.matches(NumberedAttempts.OwnId))) take(version, seen)

  override def committed(version: VersionId, seen: SeenAttempts): Unit = take(version, seen)

  override def failed(version: VersionId): Unit = {
    synchronized { if (taken.get(version.number).contains(version)) taken -= version.number }
    // Spark may have interrupted the task's own thread, which can then call nobody.
    LocalStore.threads.execute(() => agent.refuse(version))
  }

  override def uncertain(version: VersionId): Unit =
    if (Thread.currentThread.isInterrupted) failed(version) else agent.refuse(version)

  override def refused(): Unit = synchronized {
    taken = Map.empty
    newest = None
  }

  override def forgetBefore(number: Long): Unit = synchronized { taken = taken.filter(_._1 >= number) }

  private def take(version: VersionId, seen: SeenAttempts): Unit = synchronized {
    taken += version.number -> version
    newest = Some(version -> seen)
  }
}

private object NumberedAttempts {
  val OwnId = "a[0-9]+-[0-9a-f]{8}-[0-9]+-[0-9a-f]{8}"
  val Digits = 8
  val noTask: TaskAttempt = TaskAttempt("0" * Digits, 0, again = true)
}
