package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.{BufferedReader, IOException, InputStream, InputStreamReader}
import java.nio.charset.StandardCharsets

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json

/** Passes an agent's log lines on to the executor's log, and keeps the last ones for error messages. */
private[agent] final class AgentLog(pid: Long) extends Logging {
  private val kept = new java.util.ArrayDeque[String]

  /**
   * Reads the stream to its end on a daemon thread, in the lines of docs/protocol.md. No error ends it before: an agent
   * whose output nobody reads stands still.
   *
   * @return the thread
   * @throws AgentException if the machine has no thread left
   */
  def follow(stream: InputStream, name: String): Thread =
    Supervised.startOrFail(s"state-store-agent-$name")(read(stream))

  /** Reads the stream to its end in the calling thread. */
  def read(stream: InputStream): Unit = {
    val reader = new BufferedReader(new InputStreamReader(stream, StandardCharsets.UTF_8))
    var isOpen = true
    Supervised.repeat("A line of the agent's log is lost", isOpen, pauseMs = 0) {
      val text =
        try reader.readLine()
        catch { case _: IOException => null } // the stream closes with the process
      if (text == null) isOpen = false else line(text)
    }
  }

  /** Returns the last lines, oldest first. */
  def tail: String = kept.synchronized(kept.toArray.mkString("\n"))

  private def line(text: String): Unit = {
    val (level, message) = parse(text)
    remember(message)
    level match {
      case "DEBUG" => logDebug(message)
      case "INFO" => logInfo(message)
      case "ERROR" | "CRITICAL" => logError(message)
      case _ => logWarning(message)
    }
  }

  private def parse(text: String): (String, String) =
    try {
      if (!text.startsWith("{")) ("WARNING", s"agent $pid: $text")
      else {
        val record = Json.parse(text)
        val store = Json.text(record, "store").map(s => s", store $s").getOrElse("")
        (Json.text(record, "level").getOrElse("WARNING"),
          s"agent $pid$store: ${Json.text(record, "message").getOrElse(text)}")
      }
    } catch {
      case NonFatal(_) => ("WARNING", s"agent $pid: $text")
    }

  private def remember(message: String): Unit = kept.synchronized {
    if (kept.size == AgentLog.Kept) kept.removeFirst()
    kept.addLast(message)
  }
}

private object AgentLog {
  val Kept = 20
}
