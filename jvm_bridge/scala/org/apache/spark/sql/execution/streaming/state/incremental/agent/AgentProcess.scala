package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.{BufferedReader, IOException, InputStreamReader}
import java.nio.charset.StandardCharsets
import java.nio.file.{Files, Path}
import java.security.SecureRandom
import java.util.concurrent.{CompletableFuture, ConcurrentLinkedDeque, TimeoutException, TimeUnit}

import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json

/** One running agent and the idle connections to it. Safe for any thread. */
private[agent] final class AgentProcess private (process: Process, socket: Path, token: String, log: AgentLog)
  extends Logging {
  private val idle = new ConcurrentLinkedDeque[AgentConnection]

  def pid: Long = process.pid

  def isAlive: Boolean = process.isAlive

  /**
   * One call.
   *
   * @throws AgentException where the agent answers with an error
   * @throws CallTimeout where the answer does not come in time
   * @throws java.io.IOException where the connection breaks, most often because the agent died
   */
  def call(request: ObjectNode, timeoutMs: Long): ObjectNode = {
    val kept = Option(idle.pollFirst())
    val connection = kept.getOrElse(AgentConnection.unconnected())
    var isConnected = kept.nonEmpty
    var reusable = false
    try {
      val answer = Watchdog.bounded(connection, timeoutMs) {
        if (!isConnected) connection.connect(socket, token, AgentConnection.Calls)
        isConnected = true
        connection.call(request)
      }
      reusable = true
      answer
    } catch {
      case e: AgentException =>
        reusable = isConnected
        throw e
    } finally if (reusable && isAlive) idle.addFirst(connection) else connection.close()
  }

  /** Whether it answers within the time, on a new connection. One that does not hangs. */
  def answersWithin(ms: Long): Boolean = {
    val connection = AgentConnection.unconnected()
    try Watchdog.bounded(connection, ms) {
      connection.connect(socket, token, AgentConnection.Calls)
      connection.call(Json.obj("op" -> "ping"))
      true
    }
    catch { case _: IOException => false }
    finally connection.close()
  }

  /** Answers requests of the agent for files, in this thread, until the connection ends (IOException). */
  def serve(answer: Frame => Frame): Unit = {
    val connection = AgentConnection.unconnected()
    try {
      connection.connect(socket, token, AgentConnection.Files)
      connection.serve(answer)
    } finally connection.close()
  }

  /** Whether it ends by itself within the time. */
  def endsWithin(ms: Long): Boolean = process.waitFor(ms, TimeUnit.MILLISECONDS)

  /** Ends the agent at once, also if a wrapper script stands between it and this JVM. */
  def kill(): Unit = {
    process.descendants().forEach(child => { child.destroyForcibly(); () })
    process.destroyForcibly()
    closeIdle()
    try Files.deleteIfExists(socket)
    catch { case _: IOException => () } // goes with the directory
  }

  /** Ends it in order: it removes its files on the way. Killed where that takes longer than `ms`. */
  def stop(ms: Long): Unit = {
    closeIdle()
    try process.getOutputStream.close()
    catch { case _: IOException => () } // it is gone already
    if (!process.waitFor(ms, TimeUnit.MILLISECONDS)) kill()
  }

  /** Whether a signal ended it. */
  def wasKilled: Boolean = !isAlive && process.exitValue > AgentProcess.Signals

  /** Why it ended, for messages. */
  def exitDescription: String = {
    val code = if (isAlive) "still running" else s"exit code ${process.exitValue}"
    val last = log.tail
    s"agent process $pid ($code)" + (if (last.isEmpty) "" else s"; its last lines:\n$last")
  }

  private def closeIdle(): Unit =
    Iterator.continually(idle.pollFirst()).takeWhile(_ != null).foreach { connection =>
      try connection.close()
      catch { case NonFatal(e) => logDebug("closing a connection to an agent that ended", e) }
    }
}

/** An agent was ended by a signal before it answered, as the kernel does when memory is short. */
private[agent] final class AgentKilled(exitDescription: String) extends IOException(exitDescription)

private[agent] object AgentProcess extends Logging {
  /** Makes glibc give freed memory back, which it else keeps for later. */
  private val allocator = Seq("MALLOC_TRIM_THRESHOLD_" -> "1048576", "MALLOC_ARENA_MAX" -> "2")

  private val random = new SecureRandom

  /** The exit code of a process that signal `n` ended is this and `n`. */
  private val Signals = 128

  /** The version of docs/protocol.md that this JVM speaks. */
  val Protocol = 2

  /**
   * Starts an agent and waits until it answers.
   *
   * @throws AgentException naming the interpreter, where it does not
   * @throws AgentKilled where a signal ended it before
   */
  def start(python: Interpreter, room: AgentDirectory, logLevel: String, timeoutMs: Long): AgentProcess = {
    val socket = room.nextSocket()
    val token = f"${new java.math.BigInteger(128, random)}%032x"
    val process = launch(python, room)
    val log = new AgentLog(process.pid)
    try {
      log.follow(process.getErrorStream, s"${process.pid}-stderr")
      val line = Json.bytes(Json.obj("protocol" -> AgentProcess.Protocol, "token" -> token, "socket" -> socket.toString,
        "directory" -> room.directory.toString, "directories" -> Json.texts(room.directories.map(_.toString)),
        "log_level" -> logLevel))
      val ready = firstLine(process, log, timeoutMs, line :+ '\n'.toByte)
      val agent = new AgentProcess(process, socket, token, log)
      accept(ready, python, agent, timeoutMs)
      agent
    } catch {
      case e: Throwable =>
        process.destroyForcibly()
        throw e
    }
  }

  private def launch(python: Interpreter, room: AgentDirectory): Process = {
    val (script, archive) = room.program()
    val builder = new ProcessBuilder(python.executable, script.toString, archive, AgentDirectory.version)
    allocator.foreach { case (name, value) => builder.environment.putIfAbsent(name, value) }
    try builder.start()
    catch {
      case e: IOException => throw new AgentException("option",
        s"the Python interpreter '${python.executable}' (${python.origin}) cannot be started on this " +
          s"machine: ${e.getMessage}. Set spark.pyspark.python, PYSPARK_PYTHON or " +
          s"${Interpreter.OptionKey} to one that exists on every executor.",
        option = Some(Interpreter.OptionKey), cause = e)
    }
  }

  private def firstLine(
      process: Process, log: AgentLog, timeoutMs: Long, start: Array[Byte]): Option[String] = {
    val line = new CompletableFuture[Option[String]]
    val stdout = new BufferedReader(new InputStreamReader(process.getInputStream, StandardCharsets.UTF_8))
    Supervised.startOrFail(s"state-store-agent-${process.pid}-stdout") {
      try {
        process.getOutputStream.write(start)
        process.getOutputStream.flush()
        line.complete(Option(stdout.readLine()))
      } catch {
        case e: IOException => line.complete(None)
      }
      log.read(process.getInputStream) // a library may print later, which must not fill the pipe
    }
    try line.get(timeoutMs, TimeUnit.MILLISECONDS)
    catch { case _: TimeoutException => Some("") }
  }

  private def accept(
      ready: Option[String], python: Interpreter, agent: AgentProcess, timeoutMs: Long): Unit = {
    val who = s"The Python interpreter tried is '${python.executable}' (${python.origin})."
    ready match {
      case None =>
        agent.endsWithin(1000)
        if (agent.wasKilled) throw new AgentKilled(agent.exitDescription)
        throw new AgentException("internal",
          s"the agent ended before it answered: ${agent.exitDescription}\n$who ${remedy(agent.exitDescription)}".trim)
      case Some("") =>
        throw new AgentException("busy", s"the agent did not answer within $timeoutMs ms. $who A loaded " +
          "machine may need longer.", option = Some(AgentStore.Prefix + "agentStartTimeout"))
      case Some(text) =>
        val answer = try Json.parse(text) catch {
          case e: IOException =>
            throw new AgentException("internal", s"the agent began with '$text', which is not its own: a start-up file " +
              s"or a wrapper of that Python prints to standard output. Remove the line that prints. $who", cause = e)
        }
        if (!answer.path("ready").asBoolean) {
          val error = answer.path("error")
          val message = Json.text(error, "message").getOrElse("the agent could not start")
          throw new AgentException(Json.text(error, "kind").getOrElse("internal"), s"$message $who ${remedy(message)}".trim)
        }
        logInfo(s"Started agent process ${agent.pid}: $answer. $who")
    }
  }

  /** The advice to install the package that the agent needs, if that is what failed. */
  private def remedy(message: String): String =
    if (message.contains("rocksdict") || message.contains("ModuleNotFoundError")) Fix else ""

  private val Fix =
    "The agent needs the package rocksdict there: run `pip install rocksdict` with that Python on every " +
      "executor, or ship an environment that has it (venv-pack and spark.archives), or set " +
      "spark.pyspark.python to a Python that has it."
}
