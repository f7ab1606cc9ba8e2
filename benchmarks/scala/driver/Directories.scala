package statestore.benchmark

import java.nio.file.{Files, Path}
import java.util.Comparator

/** Local directories of a run. */
object Directories {
  /** Deletes a directory and all below it; one that does not exist is fine. */
  def delete(directory: Path): Unit = if (Files.exists(directory)) {
    val entries = Files.walk(directory)
    try entries.sorted(Comparator.reverseOrder()).forEach(Files.deleteIfExists(_))
    finally entries.close()
  }
}
