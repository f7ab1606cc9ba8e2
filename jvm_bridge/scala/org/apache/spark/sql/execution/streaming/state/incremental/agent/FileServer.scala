package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.IOException
import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json

/** Whose files the agents of this JVM may ask for: each open store's, by the number of its provider. */
private[agent] final class FileServers {
  private val stores = new ConcurrentHashMap[Long, FileCalls]

  def add(store: Long, files: FileCalls): Unit = stores.put(store, files)

  private val closed = ConcurrentHashMap.newKeySet[Long]

  def remove(store: Long): Unit = {
    stores.remove(store)
    closed.remove(store)
  }

  /** Serves the files of a closed store on, until `remove`, or until the agent that wants them is gone. */
  def keepUntilClosed(store: Long): Unit = if (stores.containsKey(store)) closed.add(store)

  /** Serves closed stores no more: another agent knows nothing of them. */
  def removeClosed(): Unit = closed.forEach(store => remove(store))

  /** The answer to one request; what goes wrong is in the answer. */
  def answer(request: Frame): Frame = {
    val store = request.header.path("store").asLong
    Option(stores.get(store)).map(_.answer(request)).getOrElse(Frame(Json.obj("error" -> Json.obj(
      "kind" -> "storage", "message" -> s"store $store is closed",
      "file" -> request.header.path("path").asText))))
  }
}

/**
 * Threads of this JVM that serve an agent's file requests, each on a connection of its own, as long as the
 * agent lives. They are daemons and few; a connection that breaks is opened anew.
 */
private[agent] object FileServer extends Logging {
  private val RetryPauseMs = 100L

  /** Starts one. Returns false where the machine has no thread left. */
  def start(process: AgentProcess, files: FileServers, name: String): Boolean =
    Supervised.start(name)(serve(process, files)) != null

  private def serve(process: AgentProcess, files: FileServers): Unit =
    Supervised.repeat("File requests of the agent cannot be served", process.isAlive, RetryPauseMs) {
      try process.serve(files.answer)
      catch {
        case e: IOException => logDebug("A connection for file requests ended", e)
        case e: AgentException => logDebug("The agent takes no connection for file requests", e)
      }
      if (process.isAlive) Thread.sleep(RetryPauseMs)
    }
}
