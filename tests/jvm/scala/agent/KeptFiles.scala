package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.net.URI
import java.nio.charset.StandardCharsets
import java.nio.file.{Files, Path => LocalPath, StandardCopyOption}
import java.util.concurrent.ConcurrentLinkedQueue

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{DelegateToFileSystem, Path}

import org.apache.spark.sql.execution.streaming.state.incremental.TestFiles
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json

/** Tests that no file is removed before the one that replaces it is there, whatever the rename of a connector does. */
object KeptFiles {
  private val removed = new ConcurrentLinkedQueue[String]

  private def expect(condition: Boolean, failure: => String): Unit = if (!condition) throw new AssertionError(failure)

  def main(arguments: Array[String]): Unit = {
    val directory = Files.createTempDirectory("kept-files")
    try {
      val conf = new Configuration
      for ((scheme, connector) <- Seq("steps" -> classOf[Steps], "gs" -> classOf[Steps], "swaps" -> classOf[Swaps])) {
        conf.set(s"fs.$scheme.impl", classOf[LocalFiles].getName)
        conf.set(s"fs.AbstractFileSystem.$scheme.impl", connector.getName)
      }
      for ((scheme, replaces) <- Seq("steps" -> false, "gs" -> true, "swaps" -> true)) {
        val place = Files.createDirectory(directory.resolve(scheme))
        check(new FileCalls(new Path(s"$scheme:$place"), conf), s"$scheme:$place", place, replaces)
        val behind = Files.createDirectory(directory.resolve(s"behind-$scheme"))
        conf.set(s"fs.viewfs.mounttable.$scheme.link./files", s"$scheme://$behind")
        val view = s"viewfs://$scheme/files"
        check(new FileCalls(new Path(s"$view/0/1"), conf), view, behind, replaces)
      }
      println("no file is removed before another one is in its place")
    } finally TestFiles.delete(directory.toFile)
  }

  /** @param place the local directory behind the URI */
  private def check(calls: FileCalls, uri: String, place: LocalPath, replaces: Boolean): Unit = {
    def write(text: String, overwrite: Boolean): String = {
      val header = Json.obj("fs" -> "write", "path" -> s"$uri/a", "overwrite" -> overwrite)
      calls.answer(Frame(header, text.getBytes(StandardCharsets.US_ASCII))).header.toString
    }
    def content: String = Files.readString(place.resolve("a"))
    val first = write("old", overwrite = true)
    expect(first.contains("\"ok\""), s"$uri: the first file is not written: $first")
    expect(write("other", overwrite = false).contains("conflict"), s"$uri: another writer is refused")
    expect(content == "old", s"$uri: the other writer wrote $content")
    removed.clear()
    val answer = write("new", overwrite = true)
    if (replaces) {
      expect(answer.contains("\"ok\"") && content == "new", s"$uri: not replaced: $answer, $content")
    } else {
      expect(answer.contains("it is kept") && content == "old", s"$uri: not kept: $answer, $content")
    }
    expect(!removed.contains("a"), s"$uri: the file was removed before it was replaced")
    val names = place.toFile.list.toSeq
    expect(names == Seq("a"), s"$uri: left over: $names")
  }

  /** Local files of any scheme, which note what is removed. */
  final class LocalFiles extends SchemedFiles {
    override def delete(path: Path, recursive: Boolean): Boolean = {
      removed.add(path.getName)
      super.delete(path, recursive)
    }
  }

  /** A connector with Hadoop's own way to replace a file by a rename: it deletes the file first. */
  final class Steps(uri: URI, conf: Configuration)
      extends DelegateToFileSystem(uri, new LocalFiles, conf, uri.getScheme, false)

  /** A connector whose rename replaces a file. */
  final class Swaps(uri: URI, conf: Configuration)
      extends DelegateToFileSystem(uri, new LocalFiles, conf, uri.getScheme, false) {
    override def renameInternal(from: Path, to: Path, overwrite: Boolean): Unit =
      Files.move(local(from), local(to), (if (overwrite) Seq(StandardCopyOption.REPLACE_EXISTING) else Nil): _*)

    private def local(path: Path): LocalPath = LocalPath.of(path.toUri.getPath)
  }
}
