package org.apache.spark.sql.execution.streaming.state.incremental.local

import java.util.concurrent.atomic.AtomicReference

/**
 * The restore for a reader that no writer has counted. Spark 4.0 opens a store to read and then once more to
 * write, from memory: the writer, whose commit is reported, counts the restore of the reader. Any thread.
 */
private[local] final class RestoreForReader {
  private val uncounted = new AtomicReference[Option[Opened]](None)

  /** Keeps the restore if the store was opened to read; otherwise adds one of the same version that was kept. */
  def counted(opened: Opened, readOnly: Boolean): Opened =
    if (readOnly) {
      if (opened.restored.isDefined) uncounted.set(Some(opened.copy(transaction = null)))
      opened
    } else {
      val kept = uncounted.getAndSet(None)
      kept.filter(reader => opened.restored.isEmpty && reader.start.version == opened.start.version)
        .fold(opened)(reader => opened.copy(loadMs = reader.loadMs + opened.loadMs, restored = reader.restored))
    }

  /** Forgets the restore: the reader itself became a writer, and counts it. */
  def forget(): Unit = uncounted.set(None)
}
