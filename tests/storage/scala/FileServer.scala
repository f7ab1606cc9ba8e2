package org.apache.spark.sql.execution.streaming.state.incremental.probe

import java.io.EOFException
import java.nio.file.Paths

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.state.incremental.agent.{AgentConnection, FileCalls}

/**
 * Serves the file requests of a test: connects to `socket` as an executor's JVM connects to its agent, and
 * answers what is asked until the other side closes the connection. Arguments: socket, token, root URI.
 */
object FileServer {
  def main(arguments: Array[String]): Unit = {
    val Array(socket, token, root) = arguments
    val files = new FileCalls(new Path(root), new Configuration())
    val connection = AgentConnection.unconnected()
    try {
      connection.connect(Paths.get(socket), token, AgentConnection.Files)
      connection.serve(files.answer)
    } catch { case _: EOFException => () }
    finally connection.close()
  }
}
