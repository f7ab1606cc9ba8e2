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
 * @param again true if Spark has launched a task for the same partition of the same job before
 */
final case class TaskAttempt(application: String, number: Long, again: Boolean)

/**
 * The start of an attempt at the version after `version`.
 *
 * @param parent the parent that its delta has to name
 * @param seen attempts in storage above `version` at that time; None if Spark gives ids, or nobody has asked yet
 */
final case class AttemptStart(
    version: VersionId,
    parent: String,
    task: Option[TaskAttempt] = None,
    seen: Option[SeenAttempts] = None)

object AttemptStart {
  /** Returns the start of an attempt on a version. */
  def on(version: VersionId, task: Option[TaskAttempt], seen: Option[SeenAttempts]): AttemptStart =
    AttemptStart(version, if (version.number == 0) Declarations.emptyParent else idOf(version), task, seen)

  /** Returns the start of an attempt that builds on nothing but takes the number after that of `version`. */
  def onNothing(version: VersionId): AttemptStart = AttemptStart(version, Declarations.emptyParent)

  private def idOf(version: VersionId): String =
    version.id.getOrElse(throw new IllegalStateException(s"version ${version.number} has no id to build on"))
}

/** The ids of the versions that an executor makes, and the choice of the one that Spark means. Safe for any thread. */
sealed trait Attempts {
  /** Returns the version that memory may have under this name; None if storage has to resolve the name. */
  def known(version: VersionId): Option[VersionId]

  /** Starts an attempt in memory. May call the agent. */
  def start(version: VersionId, task: Option[TaskAttempt], readOnly: Boolean): AttemptStart

  /** Returns the version that an attempt is about to commit. */
  def next(start: AttemptStart): VersionId

  /** Notes that a version was restored from storage, which had `seen` above it. */
  def restored(version: VersionId, seen: SeenAttempts): Unit = ()

  /** Notes that a version was committed here, after which storage had `seen` above it. */
  def committed(version: VersionId, seen: SeenAttempts): Unit = ()

  /** Notes that the task of a committed version failed: Spark does not take the version. */
  def failed(version: VersionId): Unit = ()

  /** Notes that the commit of a version failed, though its delta may be in storage: Spark does not take the version. */
  def uncertain(version: VersionId): Unit = ()

  /** Notes that a commit was refused: Spark may have taken other versions than memory has. */
  def refused(): Unit = ()

  /** Forgets versions with a lower number: no transaction in memory begins on them any more. */
  def forgetBefore(number: Long): Unit = ()
}

/** Attempts that Spark names by its own ids (checkpoint format 2). */
private[local] final class SparkAttempts extends Attempts {
  override def known(version: VersionId): Option[VersionId] = Some(version)

  override def start(version: VersionId, task: Option[TaskAttempt], readOnly: Boolean): AttemptStart =
    AttemptStart.on(version, task, None)

  override def next(start: AttemptStart): VersionId =
    VersionId(start.version.number + 1, Some(UUID.randomUUID.toString))
}

/**
 * Attempts of versions that Spark names by their numbers alone (checkpoint format 1): ids are made here, as the control
 * plane reads them (state_store/core/checkpoint/lineage.py). A number stands for the version that was committed or
 * restored under it last, unless its task failed.
 *
 * An attempt has to know the attempts in storage at its start, or at an earlier time. The answer to the last commit or
 * restore lists them; the agent is asked again if other executors may have written since.
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

  // A version that a reader requested by one of Spark's ids is not the version that its number stands for.
  override def restored(version: VersionId, seen: SeenAttempts): Unit =
    if (version.id.forall(_.matches(NumberedAttempts.OwnId))) take(version, seen)

  override def committed(version: VersionId, seen: SeenAttempts): Unit = take(version, seen)

  override def failed(version: VersionId): Unit = {
    synchronized { if (taken.get(version.number).contains(version)) taken -= version.number }
    // Spark may have interrupted the thread of the task, which then cannot call the agent.
    LocalStore.later(() => agent.refuse(version))
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
