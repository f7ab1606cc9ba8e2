package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.IOException
import java.net.URI
import java.nio.charset.StandardCharsets
import java.nio.file.{Files, Paths}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{DelegateToFileSystem, Path}

import org.apache.spark.sql.execution.streaming.state.incremental.TestFiles
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json

/**
 * Tests that the loser of two writers who have both seen that a name is free is told so, whatever the connector says,
 * and that another failure stays one.
 */
object MeetingWriters {
  private def expect(condition: Boolean, failure: => String): Unit = if (!condition) throw new AssertionError(failure)

  /** The rename of a connector, which gets the file's name; it returns false if this does not throw. */
  @volatile private var rename: String => Unit = _ => ()

  def main(arguments: Array[String]): Unit = {
    val directory = Files.createTempDirectory("meeting-writers")
    try {
      val conf = new Configuration
      Seq("plain", "steps").foreach(scheme => conf.set(s"fs.$scheme.impl", classOf[Meeting].getName))
      conf.set("fs.AbstractFileSystem.steps.impl", classOf[Steps].getName)
      for (scheme <- Seq("plain", "steps"); fails <- Seq(true, false)) {
        val place = Files.createDirectory(directory.resolve(s"$scheme-$fails"))
        val calls = new FileCalls(new Path(s"$scheme:$place"), conf)
        def write(name: String): String = {
          val header = Json.obj("fs" -> "write", "path" -> s"$scheme:$place/$name", "overwrite" -> false)
          calls.answer(Frame(header, "mine".getBytes(StandardCharsets.US_ASCII))).header.path("error").path(
            "kind").asText
        }
        rename = name => {
          Files.writeString(Paths.get(name), "of the other")
          if (fails) throw new IOException(s"rename to $name failed.")
        }
        expect(write("a") == "conflict", s"$scheme: the other's file was not seen")
        expect(Files.readString(place.resolve("a")) == "of the other", s"$scheme: both have written")
        rename = _ => if (fails) throw new IOException("Connection reset")
        expect(write("b") == "storage", s"$scheme: a failure is taken for another's file")
        expect(!Files.exists(place.resolve("b")), s"$scheme: b is there")
      }
      println("the loser of two writers is told of the other")
    } finally TestFiles.delete(directory.toFile)
  }

  /** Local files, among which nothing can be renamed. */
  final class Meeting extends SchemedFiles {
    override def rename(from: Path, to: Path): Boolean = {
      MeetingWriters.rename(to.toUri.getPath)
      false
    }
  }

  /** A connector for Spark's other manager of checkpoint files. */
  final class Steps(uri: URI, conf: Configuration)
      extends DelegateToFileSystem(uri, new Meeting, conf, uri.getScheme, false)
}
