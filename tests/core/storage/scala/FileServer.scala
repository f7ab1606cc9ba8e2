package org.apache.spark.sql.execution.streaming.state.incremental.probe

import java.io.EOFException
import java.nio.file.Paths

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.state.incremental.agent.{AgentConnection, FileCalls}

/**
 * Serves the file requests of a test: lends connections to `socket` as an executor's JVM lends them to its agent, and
 * answers what is asked until the other side closes them. Arguments: socket, token, root URI, number of connections.
 */
object FileServer {
  def main(arguments: Array[String]): Unit = {
    val Array(socket, token, root, connections) = arguments
    val files = new FileCalls(new Path(root), new Configuration())
    val threads = (1 to connections.toInt).map(_ => new Thread(() => serve(socket, token, files)))
    threads.foreach(_.start())
    threads.foreach(_.join())
    sys.exit() // ABFS leaves threads that nobody ends
  }

  private def serve(socket: String, token: String, files: FileCalls): Unit = {
    val connection = AgentConnection.unconnected()
    try {
      connection.connect(Paths.get(socket), token, AgentConnection.Files)
      connection.serve(files.answer)
    } catch { case _: EOFException => () }
    finally connection.close()
  }
}
