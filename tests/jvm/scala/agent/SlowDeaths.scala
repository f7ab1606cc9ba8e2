package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, InputStream, OutputStream}
import java.nio.file.Files
import java.util.concurrent.TimeUnit
import java.util.stream.{Stream => JavaStream}

/**
 * Tests that an agent that was killed counts as ended, although its process is still there, and that its successor waits
 * for its end, but not for ever.
 */
object SlowDeaths {
  private final class Lingering extends Process {
    var steps = Vector.empty[String]
    override def getOutputStream: OutputStream = new ByteArrayOutputStream
    override def getInputStream: InputStream = new ByteArrayInputStream(Array.emptyByteArray)
    override def getErrorStream: InputStream = getInputStream
    override def waitFor(): Int = throw new IllegalStateException("it does not end")
    override def waitFor(timeout: Long, unit: TimeUnit): Boolean = {
      steps :+= s"wait ${unit.toMillis(timeout)}"
      false
    }
    override def exitValue(): Int = throw new IllegalThreadStateException("it has not ended")
    override def destroy(): Unit = ()
    override def destroyForcibly(): Process = {
      steps :+= "kill"
      this
    }
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
    val lost = new Lingering
    new AgentProcess(lost, socket, "token", new AgentLog(1)).end()
    require(lost.steps == Vector("wait 100", "kill", "wait 10000"), lost.steps)
    println("an agent that was killed counts as ended")
  }
}
