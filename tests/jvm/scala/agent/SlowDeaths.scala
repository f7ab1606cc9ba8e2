package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, InputStream, OutputStream}
import java.nio.file.Files
import java.util.concurrent.TimeUnit
import java.util.stream.{Stream => JavaStream}

/** Tests that an agent that was killed counts as ended, although its process is still there. */
object SlowDeaths {
  private final class Lingering extends Process {
    override def getOutputStream: OutputStream = new ByteArrayOutputStream
    override def getInputStream: InputStream = new ByteArrayInputStream(Array.emptyByteArray)
    override def getErrorStream: InputStream = getInputStream
    override def waitFor(): Int = throw new IllegalStateException("it does not end")
    override def waitFor(timeout: Long, unit: TimeUnit): Boolean = false
    override def exitValue(): Int = throw new IllegalThreadStateException("it has not ended")
    override def destroy(): Unit = ()
    override def destroyForcibly(): Process = this
    override def isAlive: Boolean = true
    override def pid: Long = 1
    override def descendants(): JavaStream[ProcessHandle] = JavaStream.empty[ProcessHandle]
  }

  def main(arguments: Array[String]): Unit = {
    val socket = Files.createTempFile("agent", ".socket")
    val agent = new AgentProcess(new Lingering, socket, "token", new AgentLog(1))
    require(agent.isAlive && !agent.endsWithin(1))
    agent.kill()
    require(!agent.isAlive, "the next call would ask it again")
    require(!agent.wasKilled && agent.exitDescription.contains("still running"))
    require(!Files.exists(socket))
    println("an agent that was killed counts as ended")
  }
}
