package org.apache.spark.sql.execution.streaming.state.incremental.local

import java.io.IOException
import java.nio.channels.ClosedByInterruptException
import java.util.concurrent.atomic.AtomicLong
import java.util.concurrent.RejectedExecutionException

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.agent.{AgentException, AgentStore, MergedStore, RestoreAnswer}
import org.apache.spark.sql.execution.streaming.state.incremental.base.{BaseDirectory, Beside, BesideDelta, FarRowsException, NeedsDatabaseException}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.{ColumnFamilies, UnknownFormatException, VersionId}
import org.apache.spark.sql.execution.streaming.state.incremental.transaction.StoreVersions

/**
 * The bases of one store: what the agent restored or merged, as directories that the data plane opens and gives back.
 *
 * @param state    evaluated where a base is put there
 * @param restored is told of each answer of the agent to a restore, before its files are opened
 */
private[local] final class StoreBases(
    name: String,
    agent: AgentStore,
    state: => StoreVersions,
    restored: RestoreAnswer => Unit)
  extends Logging {
  private val damages = new AtomicLong

  /** What a merge made. */
  def merged(made: MergedStore): BaseDirectory =
    BaseDirectory(made.directory, made.version, made.keys, () => release(made.directory),
      onDamage = () => tellDamage(made.directory))

  /**
   * Restores a version from files that are verified block by block as they are read; all of them at once, where
   * that has shown some to be damaged, or does so now. What the agent said, and the column families of the version.
   *
   * @param thorough whether to verify all of them
   * @param ingest whether RocksDB has to read them
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
      case e @ (_: ClosedByInterruptException | _: FarRowsException) => throw e
      case e: IOException if !thorough =>
        logWarning(s"What was restored of version ${version.number} of $name cannot be read: all files are verified now", e)
        restore(version, snapshot, thorough = true, ingest)
    }
  }

  private def directoryOf(version: VersionId, answer: RestoreAnswer): BaseDirectory = {
    val deltas = answer.beside.reverse.map { case (delta, path) => BesideDelta(path, delta) }
    BaseDirectory(
      answer.directory,
      version,
      keys = if (deltas.isEmpty) answer.keys else -1,
      onClose = () => release(answer.directory),
      beside = Some(Beside(
        answer.base, answer.keys, deltas, answer.sparse, fetch(answer.directory, _, _, _), answer.needsRocksDb)),
      onDamage = () => tellDamage(answer.directory))
  }

  /** Where storage fails, the files are as good as they were; where it has lost one, or has it damaged, they are not. */
  private def fetch(directory: String, file: String, offset: Long, length: Long): Unit =
    try agent.fetch(directory, file, offset, length)
    catch {
      case e: AgentException =>
        val message =
          s"$length bytes at $offset of $directory/$file, which was restored in part, cannot be read: ${e.getMessage}"
        throw if (e.kind == "missing" || e.kind == "damaged") new IOException(message, e) else new FarRowsException(message, e)
    }

  /** Releases a directory in another thread: the caller may hold a lock, and the agent may hang. */
  private def release(directory: String): Unit =
    try LocalStore.threads.execute(() => agent.release(directory))
    catch { case _: RejectedExecutionException | _: OutOfMemoryError => agent.release(directory) }

  /** Bases in which a block was found damaged, by a batch or in the background. */
  def damaged: Long = damages.get

  /** Not by the thread that found it, which may be interrupted any moment. */
  private def tellDamage(directory: String): Unit = {
    damages.incrementAndGet()
    LocalStore.threads.execute(() => agent.foundDamage(directory))
  }
}
