package org.apache.spark.sql.execution.streaming.state.incremental.probe

import java.nio.file.Paths

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.state.incremental.agent.{AgentConnection, FileCalls}
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json

/**
 * Serves the file system calls of a test: connects to `socket` as an executor's JVM connects to its agent,
 * makes one call, and answers what is asked within it, until the other side ends it. Arguments: socket,
 * token, root URI.
 */
object FileServer {
  def main(arguments: Array[String]): Unit = {
    val Array(socket, token, root) = arguments
    val files = new FileCalls(new Path(root), new Configuration())
    val connection = AgentConnection.open(Paths.get(socket), token)
    try connection.call(Json.obj("op" -> "serve"), files.answer)
    finally connection.close()
  }
}
