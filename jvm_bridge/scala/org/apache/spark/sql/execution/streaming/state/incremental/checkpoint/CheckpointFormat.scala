package org.apache.spark.sql.execution.streaming.state.incremental.checkpoint

import java.io.IOException

import com.fasterxml.jackson.databind.node.ObjectNode

/**
 * A file of a checkpoint was written by a release whose format is not known here: nothing is wrong with it.
 *
 * @param file which it is
 */
final class UnknownFormatException(val file: String, found: String)
    extends IOException(s"'$file' has checkpoint format $found, this program knows format ${CheckpointFormat.known}")

/** What the files of a checkpoint say of their own format. */
private[checkpoint] object CheckpointFormat {

  /** The only one so far; a reader refuses any other. */
  val known: Int = 1

  /**
   * @param says what the file says of itself
   * @throws UnknownFormatException when it is of another format
   * @throws IOException when it does not say of which
   */
  private[checkpoint] def check(says: ObjectNode, file: String): Unit = {
    val found = says.path("format")
    if (!found.isIntegralNumber) throw new IOException(s"'$file' does not say of which format it is")
    if (found.asText != known.toString) throw new UnknownFormatException(file, found.asText)
  }
}
