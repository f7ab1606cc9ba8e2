package statestore.benchmark

import java.io.UncheckedIOException
import java.nio.file.{DirectoryNotEmptyException, Files, NoSuchFileException, Path}
import java.util.Comparator

/** Local directories of a run. */
object Directories {
  private val Tries = 100
  private val PauseMs = 50L

  /**
   * Deletes a directory and all below it; one that does not exist is fine. An agent that has not stopped yet may write
   * or delete files meanwhile: then it tries again.
   */
  def delete(directory: Path, tries: Int = Tries): Unit = if (Files.exists(directory)) {
    try {
      val entries = Files.walk(directory)
      try entries.sorted(Comparator.reverseOrder()).forEach(Files.deleteIfExists(_))
      finally entries.close()
    } catch {
      case _: DirectoryNotEmptyException | _: NoSuchFileException | _: UncheckedIOException if tries > 1 =>
        Thread.sleep(PauseMs)
        delete(directory, tries - 1)
    }
  }
}
