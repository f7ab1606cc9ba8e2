package org.apache.spark.sql.execution.streaming.state.incremental.settings

import java.io.IOException
import java.nio.file.{AccessDeniedException, FileAlreadyExistsException, FileSystemException, NoSuchFileException}
import java.nio.file.NotDirectoryException

/** Advice on a local disk of an executor that failed, by the cause. The texts are those of the operating system. */
private[incremental] object LocalDisks {

  /** The option that moves local files to another disk. */
  val Option: String = Declarations.prefix + "localDir"

  private val elsewhere = s"or set $Option or spark.local.dir to another."
  private val full = s"Free space on that disk of the executor, $elsewhere"
  private val notAllowed = s"Let the user of the executor write there, $elsewhere"
  private val noDirectory = s"Remove the file that stands where a directory has to be, $elsewhere"
  private val removed = s"Keep cleaners of temporary files away from it, $elsewhere"
  private val byText = Seq(
    "No space left" -> full,
    "quota exceeded" -> s"Delete files of the executor's user there, have the quota raised, $elsewhere",
    "Read-only file system" -> s"Mount that file system so that it can be written, $elsewhere",
    "Permission denied" -> notAllowed,
    "Operation not permitted" -> notAllowed,
    "Not a directory" -> noDirectory,
    "No such file or directory" -> removed,
    "Input/output error" -> s"Replace that disk, whose faults the kernel's log describes, $elsewhere")

  /** Returns the reason for a failure: the messages of some exceptions are only the name of the file. */
  def reason(error: IOException): String = error match {
    case _: FileSystemException => s"${error.getClass.getSimpleName}: ${error.getMessage}"
    case _ => error.getMessage
  }

  /** Returns a sentence with what a user can do about a failure of a local disk. */
  def remedy(error: IOException): String = error match {
    case _: AccessDeniedException => notAllowed
    case _: NotDirectoryException | _: FileAlreadyExistsException => noDirectory
    case _: NoSuchFileException => removed
    case _ =>
      val text = String.valueOf(error.getMessage)
      byText.collectFirst { case (words, advice) if text.contains(words) => advice }
        .getOrElse(s"Check that disk of the executor, $elsewhere")
  }
}
