package statestore.benchmark

import java.io.{BufferedWriter, Closeable}
import java.nio.file.{Files, Path}

import com.fasterxml.jackson.databind.ObjectMapper
import com.fasterxml.jackson.module.scala.DefaultScalaModule

/** Writes measurements as one JSON object a line. Each line is flushed, so that a killed run keeps the lines before. */
final class Events(file: Path) extends Closeable {
  private val mapper = new ObjectMapper().registerModule(DefaultScalaModule)
  private val out: BufferedWriter = Files.newBufferedWriter(file)

  def write(fields: (String, Any)*): Unit = synchronized {
    out.write(mapper.writeValueAsString(fields.toMap))
    out.newLine()
    out.flush()
  }

  override def close(): Unit = out.close()
}

object Events {
  /** Returns the messages of an error and of its causes, and the top of the innermost stack. */
  def describe(error: Throwable): Seq[(String, Any)] = {
    val chain = Iterator.iterate(error)(_.getCause).takeWhile(_ != null).take(8).toSeq
    Seq("message" -> chain.map(_.toString).mkString(" <- "),
      "stack" -> chain.last.getStackTrace.take(12).mkString("\n"))
  }
}
