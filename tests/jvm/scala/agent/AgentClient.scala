package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.{ByteArrayInputStream, InputStream}
import java.nio.file.Files
import java.nio.file.attribute.PosixFilePermissions

import scala.collection.mutable

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.state.{StateStoreConf, StateStoreId}
import org.apache.spark.sql.internal.SQLConf

/**
 * Tests of the JVM's side of an agent that misbehaves: no error ends the thread that reads its log, and the first call
 * of a store is bounded by the option that its message names. Arguments: a Python interpreter, and the agent to run
 * with it.
 */
object AgentClient {
  private val errors = Seq[() => Throwable](
    () => new IllegalStateException("a defect"), () => new OutOfMemoryError("memory"),
    () => new InternalError("a mapped file"), () => new StackOverflowError, () => new NoClassDefFoundError("class"))

  def main(arguments: Array[String]): Unit = {
    val program = Files.createTempFile("python", "",
      PosixFilePermissions.asFileAttribute(
        PosixFilePermissions.fromString("rwx------")))
    Files.writeString(program, s"#!/bin/sh\nexec '${arguments(0)}' '${arguments(1)}'\n")
    try {
      linesAreRead()
      openIsBounded(program.toString)
    } finally Files.delete(program)
    println("the log was read, the call bounded")
  }

  /** Reads a stream that fails once for each error, between whole lines. */
  private def linesAreRead(): Unit = {
    val survivable = errors.map(_())
    val log = new AgentLog(7)
    val stream = new InputStream {
      private val parts = mutable.Queue.from[Any](survivable.flatMap(error => Seq(error, s"after $error\n")))
      private var part = new ByteArrayInputStream(Array.emptyByteArray)
      override def read(): Int = throw new UnsupportedOperationException
      override def read(bytes: Array[Byte], offset: Int, length: Int): Int = {
        if (part.available == 0 && parts.nonEmpty) parts.dequeue() match {
          case error: Throwable => throw error
          case text => part = new ByteArrayInputStream(text.toString.getBytes)
        }
        part.read(bytes, offset, length)
      }
    }
    log.follow(stream, "test").join()
    val missing = survivable.filterNot(error => log.tail.contains(s"after $error"))
    require(missing.isEmpty, s"the lines after $missing are missing in '${log.tail}'")
  }

  /** Makes the first call of a store to an agent that answers all calls but this. */
  private def openIsBounded(python: String): Unit = {
    val conf = new SQLConf
    conf.setConfString(AgentStore.Prefix + "agentPython", python)
    conf.setConfString(AgentStore.Prefix + "callTimeout", "1s")
    val store = new AgentStore(StateStoreId("/tmp/none", 0, 0), "run", StateStoreConf(conf), new Configuration(false))
    val failure =
      try { store.opened; None }
      catch { case e: AgentException => Some(e) }
    require(
      failure.exists(e => e.option.contains(AgentStore.Prefix + "callTimeout") && e.getMessage.contains("1000 ms")),
      s"the first call ended with $failure")
    store.close()
    val late =
      try { store.full(1, None, "late"); None }
      catch { case e: AgentException => Some(e) }
    require(late.exists(e => e.kind == "busy" && e.option.isEmpty), s"a call after the end was made: $late")
  }
}
