package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.{FileNotFoundException, IOException}
import java.net.URI
import java.nio.file.Files
import java.util.concurrent.atomic.AtomicInteger

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataInputStream, FSInputStream, Path, RawLocalFileSystem}

import org.apache.spark.sql.execution.streaming.state.incremental.TestFiles
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json

/**
 * Tests that a file which is replaced while it is read is read again, whatever its storage calls that, and one that is
 * missing is not.
 */
object ReplacedFiles {
  private def expect(condition: Boolean, failure: => String): Unit = if (!condition) throw new AssertionError(failure)

  def main(arguments: Array[String]): Unit = {
    val directory = Files.createTempDirectory("replaced-files").toFile
    try {
      val content = Array.tabulate[Byte](5000)(_.toByte)
      Files.write(directory.toPath.resolve("a"), content)
      val local = directory.toPath.resolve("local")
      val conf = new Configuration
      conf.set("fs.replaced.impl", classOf[ReplacedFiles].getName)
      conf.set("fs.replaced.impl.disable.cache", "true")
      val path = s"replaced:$directory/a"
      val calls = new FileCalls(new Path(s"replaced:$directory"), conf)
      val asked = Seq(
        Json.obj("fs" -> "read", "path" -> path),
        Json.obj("fs" -> "download", "path" -> path, "to" -> local.toString),
        Json.obj("fs" -> "spans", "path" -> path,
          "spans" -> Json.array(Seq(
            Json.obj("path" -> path, "to" -> local.toString, "pieces" -> Json.array(Seq(0, content.length)))))))
      for (message <- ReplacedFiles.Replaced; header <- asked) {
        Files.write(local, new Array[Byte](0))
        ReplacedFiles.message = message
        ReplacedFiles.failing.set(2)
        val answer = calls.answer(Frame(header))
        expect(answer.header.has("ok"), s"$header, $message: ${answer.header}")
        val read = if (answer.body.nonEmpty) answer.body else Files.readAllBytes(local)
        expect(read.sameElements(content), s"$header, $message: ${read.length} bytes")
      }
      for (header <- asked.map(_.deepCopy.put("path", s"$path-not-there"))) {
        ReplacedFiles.message = ReplacedFiles.Replaced.last
        ReplacedFiles.opened.set(0)
        header.path("spans").elements.asScala.foreach {
          case span: ObjectNode => span.put("path", s"$path-not-there")
          case other => throw new AssertionError(s"$other is a span")
        }
        val answer = calls.answer(Frame(header)).header
        expect(answer.path("error").path("kind").asText == "missing", s"$header: $answer")
        expect(ReplacedFiles.opened.get == 1, s"a missing file was asked for ${ReplacedFiles.opened} times: $header")
      }
      ReplacedFiles.message = "Connection reset"
      ReplacedFiles.failing.set(1)
      expect(calls.answer(Frame(asked.head)).header.has("error"), "another failure is reported")
      println("replaced files are read again")
    } finally TestFiles.delete(directory)
  }

  /** Messages of storages about a file that was replaced: HDFS, S3, Google Cloud Storage. */
  private val Replaced = Seq("Blocklist for /a has changed!", "Status Code: 412; Precondition Failed",
    "Item not found: 'gs://b/a'. Note, it is possible that the live version is still available but the requested " +
      "generation is deleted.")

  @volatile private var message = ""
  private val failing = new AtomicInteger
  private val opened = new AtomicInteger
}

/** Local files of which the first reads fail. */
final class ReplacedFiles extends RawLocalFileSystem {
  override def getUri: URI = URI.create("replaced:///")

  override def open(path: Path, bufferBytes: Int): FSDataInputStream = {
    ReplacedFiles.opened.incrementAndGet()
    if (!exists(path)) throw new FileNotFoundException(ReplacedFiles.message)
    val in = super.open(path, bufferBytes)
    new FSDataInputStream(new FSInputStream {
      override def read(): Int = in.read()
      override def read(to: Array[Byte], at: Int, length: Int): Int =
        if (in.getPos > 0 && ReplacedFiles.failing.getAndDecrement() > 0) throw new IOException(ReplacedFiles.message)
        else in.read(to, at, math.min(length, 1000))
      override def seek(position: Long): Unit = in.seek(position)
      override def getPos: Long = in.getPos
      override def seekToNewSource(position: Long): Boolean = false
      override def close(): Unit = in.close()
    })
  }
}
