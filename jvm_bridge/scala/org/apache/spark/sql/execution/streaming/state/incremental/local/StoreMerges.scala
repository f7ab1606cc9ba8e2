package org.apache.spark.sql.execution.streaming.state.incremental.local

import java.util.concurrent.TimeUnit
import java.util.concurrent.locks.ReentrantLock

import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.agent.{AgentException, AgentStore}
import org.apache.spark.sql.execution.streaming.state.incremental.base.BaseDirectory
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{Json, VersionId}

/** Figures of a store's merges since its provider was opened; files are those of the last that published. */
final case class MergeFigures(
    merges: Long = 0,
    fulls: Long = 0,
    ingests: Long = 0,
    failures: Long = 0,
    totalMs: Long = 0,
    fullMs: Long = 0,
    uploadedBytes: Long = 0,
    sharedFiles: Long = 0,
    newFiles: Long = 0,
    ownFiles: Long = 0,
    lastSnapshotVersion: Long = -1) {
  /** What came on top of earlier figures of the same store: counts, durations and bytes. */
  def since(earlier: MergeFigures): MergeFigures = copy(
    merges = merges - earlier.merges,
    fulls = fulls - earlier.fulls,
    ingests = ingests - earlier.ingests,
    failures = failures - earlier.failures,
    totalMs = totalMs - earlier.totalMs,
    fullMs = fullMs - earlier.fullMs,
    uploadedBytes = uploadedBytes - earlier.uploadedBytes)
}

/**
 * The merges of one store: run one at a time, after the commits that asked for them, outside the tasks;
 * requests that meet one that waits are folded into it. Safe for any thread.
 *
 * @param offer takes the directory that a merge made, as the base of what comes
 * @param published is told of each version whose snapshot is in checkpoint storage
 */
final class StoreMerges(
    store: String,
    agent: AgentStore,
    offer: BaseDirectory => Unit,
    published: Long => Unit) extends Logging {
  import StoreMerges._

  private val oneAtATime = new ReentrantLock
  private var pending: Option[Request] = None
  private var scheduled = false
  private var closed = false
  private var lastEndNs: Option[Long] = None
  private var failuresInRow = 0
  private var lastFailure: Throwable = _
  private var counts = MergeFigures()

  def figures: MergeFigures = synchronized(counts)

  /** Asks for a merge of the version just committed; one that waits already will merge it instead. */
  def committed(at: VersionId, due: Option[(String, String)], ingest: Boolean): Unit = synchronized {
    val asked = due.orElse(if (ingest) Some(Ingest -> "the memory budget is full") else None)
    pending = (pending, asked) match {
      case (None, None) => None
      case (Some(waiting), None) => Some(waiting.copy(at = at))
      case (None, Some((kind, reason))) => Some(Request(at, kind, reason, ingest))
      case (Some(waiting), Some((kind, reason))) =>
        val stronger =
          if (strength(kind) > strength(waiting.kind)) waiting.copy(kind = kind, reason = reason) else waiting
        Some(stronger.copy(at = at, urgent = waiting.urgent || ingest))
    }
    schedule()
  }

  /** Merges that version now, in this thread; a failure is counted and logged, not thrown. */
  def mergeNow(at: VersionId, kind: String, reason: String): Unit =
    run(Request(at, kind, reason, urgent = true))

  /** Throws where more merges failed in a row than the option tolerates. */
  def check(): Unit = synchronized {
    val tolerable = agent.opened.number("tolerableFailedMerges")
    if (tolerable >= 0 && failuresInRow > tolerable) {
      throw new AgentException("storage", s"$failuresInRow merges of $store failed in a row, more than " +
        s"${AgentStore.Prefix}tolerableFailedMerges = $tolerable allows. The last failure: " +
        lastFailure.getMessage,
        option = Some(AgentStore.Prefix + "tolerableFailedMerges"), cause = lastFailure)
    }
  }

  /** No merge starts any more; what one that runs has made is handed back to the agent. */
  def close(): Unit = synchronized {
    closed = true
    pending = None
  }

  private def schedule(): Unit = pending.foreach { request =>
    if (!scheduled && !closed) {
      scheduled = true
      val pauseMs = if (request.urgent) 0L else lastEndNs.fold(0L) { end =>
        agent.opened.number("minPauseBetweenMerges") - TimeUnit.NANOSECONDS.toMillis(System.nanoTime - end)
      }
      MergeScheduler.submit(pauseMs, agent.opened.number("maxConcurrentMerges").toInt)(runPending())
    }
  }

  private def runPending(): Unit = {
    val request = synchronized {
      val taken = if (closed) None else pending
      pending = None
      taken
    }
    try request.foreach(run)
    finally synchronized {
      scheduled = false
      schedule()
    }
  }

  private def run(request: Request): Unit = {
    oneAtATime.lockInterruptibly()
    val startNs = System.nanoTime
    try {
      val answer = agent.merge(request.at, request.kind, request.reason)
      val ms = TimeUnit.NANOSECONDS.toMillis(System.nanoTime - startNs)
      Json.text(answer, "skipped") match {
        case Some(why) => logDebug(s"Merge of $store at version ${request.at.version} was skipped: $why")
        case None => succeeded(request, answer, ms)
      }
      synchronized { failuresInRow = 0 }
    } catch {
      case NonFatal(e) => failed(request, e)
    } finally {
      synchronized { lastEndNs = Some(System.nanoTime) }
      oneAtATime.unlock()
    }
  }

  private def succeeded(request: Request, answer: JsonNode, ms: Long): Unit = {
    val at = VersionId(answer.path("version").asLong, Json.text(answer, "id"))
    val kind = Json.text(answer, "kind").getOrElse(request.kind)
    count(kind, at, answer, ms)
    logInfo(s"Merge ($kind) of $store at version ${at.version} took $ms ms: ${request.reason}")
    if (kind != Ingest) published(at.version)
    Json.text(answer, "directory").foreach { directory =>
      val base = BaseDirectory(directory, at, answer.path("keys").asLong, () => agent.release(directory))
      if (synchronized(closed)) base.onClose() else offer(base)
    }
  }

  private def count(kind: String, at: VersionId, answer: JsonNode, ms: Long): Unit = synchronized {
    if (kind == Ingest) counts = counts.copy(ingests = counts.ingests + 1)
    else {
      val full = if (kind == Full) 1 else 0
      counts = counts.copy(
        merges = counts.merges + 1,
        fulls = counts.fulls + full,
        totalMs = counts.totalMs + ms,
        fullMs = counts.fullMs + full * ms,
        uploadedBytes = counts.uploadedBytes + answer.path("uploaded_bytes").asLong,
        sharedFiles = answer.path("shared_files").asLong,
        newFiles = answer.path("new_files").asLong,
        ownFiles = answer.path("own_files").asLong,
        lastSnapshotVersion = math.max(counts.lastSnapshotVersion, at.version))
    }
  }

  private def failed(request: Request, e: Throwable): Unit = synchronized {
    failuresInRow += 1
    lastFailure = e
    counts = counts.copy(failures = counts.failures + 1)
    val text = s"Merge (${request.kind}) of $store at version ${request.at.version} failed, $failuresInRow " +
      "in a row; nothing is lost, the chain of deltas stays longer"
    if (closed) logInfo(s"$text: ${e.getMessage}") else logWarning(text, e)
  }
}

object StoreMerges {
  val Ingest = "ingest"
  val Incremental = "incremental"
  val Full = "full"

  private def strength(kind: String): Int = Seq(Ingest, Incremental, Full).indexOf(kind)

  private final case class Request(at: VersionId, kind: String, reason: String, urgent: Boolean)
}
