package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.net.{StandardProtocolFamily, UnixDomainSocketAddress}
import java.nio.channels.ServerSocketChannel
import java.nio.file.Files

/** Prints the path of the next socket of an agent, and if a socket can be bound there. */
object SocketPlace {
  def main(arguments: Array[String]): Unit = {
    val directory = new AgentDirectory
    try {
      val path = directory.nextSocket()
      val channel = ServerSocketChannel.open(StandardProtocolFamily.UNIX)
      channel.bind(UnixDomainSocketAddress.of(path))
      channel.close()
      println(s"$path ${Files.exists(path)}")
    } finally directory.remove()
  }
}
