package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.{BufferedReader, InputStream, InputStreamReader, IOException}
import java.nio.charset.StandardCharsets
import java.nio.file.{Files, Path, Paths}
import java.nio.file.attribute.PosixFilePermissions
import java.security.SecureRandom
import java.util.Properties
import java.util.concurrent.{CompletableFuture, TimeoutException, TimeUnit}

import scala.util.control.{ControlThrowable, NonFatal}

import org.apache.spark.{SparkConf, SparkEnv}
import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json
import org.apache.spark.sql.execution.streaming.state.incremental.release.Jar
import org.apache.spark.sql.execution.streaming.state.incremental.settings.Declarations
import org.apache.spark.util.Utils

// The agent's process: it is started, gets its directory, and its log is passed on.

/** A running agent. Safe for any thread. */
private[agent] final class AgentProcess(process: Process, socket: Path, token: String, log: AgentLog) {
  val connections = new AgentConnections(socket, token, isAlive)

  @volatile private var isKilled = false

  def pid: Long = process.pid

  /** Returns false for an agent that was killed, whose process may take seconds to end on a busy machine, too. */
  def isAlive: Boolean = !isKilled && process.isAlive

  /** Ends an agent that is lost; its successor finds the files of one that has ended. */
  def end(): Unit = {
    endsWithin(AgentProcess.ExitWaitMs)
    kill()
    endsWithin(AgentProcess.KilledWaitMs)
  }

  /** Waits for the process to end by itself. Returns false if it runs on after the time. */
  def endsWithin(ms: Long): Boolean = process.waitFor(ms, TimeUnit.MILLISECONDS)

  /** Kills the agent at once, even if a wrapper script stands between it and this JVM. */
  def kill(): Unit = {
    isKilled = true
    process.descendants().forEach(child => { child.destroyForcibly(); () })
    process.destroyForcibly()
    connections.close()
    try Files.deleteIfExists(socket)
    catch { case _: IOException => () } // the directory of the socket is removed later
  }

  /** Lets the agent end in order, so that it removes its files; kills it if that takes longer than `ms`. */
  def stop(ms: Long): Unit = {
    connections.close()
    try process.getOutputStream.close()
    catch { case _: IOException => () } // the process has ended already
    if (!process.waitFor(ms, TimeUnit.MILLISECONDS)) kill()
  }

  /** Returns true if a signal ended the process. */
  def wasKilled: Boolean = !process.isAlive && process.exitValue > AgentProcess.Signals

  /** Describes how the process ended, for messages. */
  def exitDescription: String = {
    val code = if (process.isAlive) "still running" else s"exit code ${process.exitValue}"
    val last = log.tail
    s"agent process $pid ($code)" + (if (last.isEmpty) "" else s"; its last lines:\n$last")
  }
}

/** The failure of an agent that a signal ended before it answered, as the kernel does when memory is short. */
private[agent] final class AgentKilled(exitDescription: String) extends IOException(exitDescription)

private[agent] object AgentProcess extends Logging {
  /** Makes glibc give freed memory back; by default it keeps it. */
  private val allocator = Seq("MALLOC_TRIM_THRESHOLD_" -> "1048576", "MALLOC_ARENA_MAX" -> "2")

  private val random = new SecureRandom
  private val ExitWaitMs = 100L
  private val KilledWaitMs = 10000L

  /** A process that signal `n` ended has this number plus `n` as its exit code. */
  private val Signals = 128

  /** The version of docs/protocol.md that this JVM speaks. */
  val Protocol = 3

  /**
   * Starts an agent and waits until it answers.
   *
   * @param timeoutMs how long to wait, in milliseconds
   * @throws AgentException if the agent does not start; it names the interpreter
   * @throws AgentKilled if a signal ended the agent before it answered
   */
  def start(python: Interpreter, agentDirectory: AgentDirectory, logLevel: String, timeoutMs: Long): AgentProcess = {
    val socket = agentDirectory.nextSocket()
    val token = f"${new java.math.BigInteger(128, random)}%032x"
    val process = launch(python, agentDirectory)
    val log = new AgentLog(process.pid)
    try {
      log.follow(process.getErrorStream, s"${process.pid}-stderr")
      val line = Json.bytes(Json.obj("protocol" -> AgentProcess.Protocol, "token" -> token, "socket" -> socket.toString,
        "directory" -> agentDirectory.directory.toString,
        "directories" -> Json.texts(agentDirectory.directories.map(_.toString)),
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

  private def launch(python: Interpreter, agentDirectory: AgentDirectory): Process = {
    val (script, archive) = agentDirectory.program()
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
      log.read(process.getInputStream) // a library may print later, and must not fill the pipe
    }
    try line.get(timeoutMs, TimeUnit.MILLISECONDS)
    catch { case _: TimeoutException => Some("") }
  }

  private def accept(
      ready: Option[String], python: Interpreter, agent: AgentProcess, timeoutMs: Long): Unit = {
    val tried = s"The Python interpreter tried is '${python.executable}' (${python.origin})."
    ready match {
      case None =>
        agent.endsWithin(1000)
        if (agent.wasKilled) throw new AgentKilled(agent.exitDescription)
        throw new AgentException("internal",
          s"the agent ended before it answered: ${agent.exitDescription}\n$tried ${remedy(agent.exitDescription)}".trim)
      case Some("") =>
        throw new AgentException("busy",
          s"the agent did not answer within $timeoutMs ms. $tried A loaded " +
            "machine may need longer.",
          option = Some(AgentStore.Prefix + "agentStartTimeout"))
      case Some(text) =>
        val answer =
          try Json.parse(text)
          catch {
            case e: IOException =>
              throw new AgentException("internal",
                s"the agent began with '$text', which is not its own: a start-up " +
                  s"file or a wrapper of that Python prints to standard output. Remove the line that prints. $tried",
                cause = e)
          }
        if (!answer.path("ready").asBoolean) {
          val error = answer.path("error")
          val message = Json.text(error, "message").getOrElse("the agent could not start")
          throw new AgentException(
            Json.text(error, "kind").getOrElse("internal"),
            s"${message.stripSuffix(".")}. $tried ${remedy(message)}".trim)
        }
        logInfo(s"Started agent process ${agent.pid}: $answer. $tried")
    }
  }

  /** Returns the advice to install the package that the agent needs, if one is missing and the message has none. */
  private def remedy(message: String): String = {
    val lacksPackage = message.contains("rocksdict") || message.contains("ModuleNotFoundError")
    if (lacksPackage && !message.contains("pip install")) Fix else ""
  }

  private val Fix =
    "The agent needs the package rocksdict there: run `pip install rocksdict` with that Python on every " +
      "executor, or ship an environment that has it (venv-pack and spark.archives), or set " +
      "spark.pyspark.python to a Python that has it."
}

/**
 * The Python that runs an agent.
 *
 * @param executable path of the program, relative to the executor's working directory, or found on its PATH
 * @param origin source of the choice, for messages
 */
final case class Interpreter(executable: String, origin: String)

object Interpreter {
  val OptionKey: String = Declarations.key("agentPython")

  /** Returns the interpreter that the option names, or else the one that PySpark uses on this machine. */
  def choose(option: Option[String]): Interpreter = {
    val conf = Option(SparkEnv.get).map(_.conf).getOrElse(new SparkConf)
    def nonEmpty(text: Option[String]) = text.map(_.trim).filter(_.nonEmpty)
    nonEmpty(option).map(Interpreter(_, s"option $OptionKey"))
      .orElse(nonEmpty(conf.getOption("spark.pyspark.python")).map(Interpreter(_, "spark.pyspark.python")))
      .orElse(nonEmpty(sys.env.get("PYSPARK_PYTHON")).map(Interpreter(_, "variable PYSPARK_PYTHON")))
      .getOrElse(
        Interpreter("python3", "the default, as neither spark.pyspark.python nor PYSPARK_PYTHON is set"))
  }
}

/**
 * Local directories of the agents of one JVM, each of which replaces the one before: a directory with a short path
 * for sockets, one below each of Spark's local directories for their files, and the program that starts them. All
 * are of mode 0700 and are removed with the JVM.
 */
final class AgentDirectory {
  private var sockets: Path = AgentDirectory.shortDirectory()

  /** Directories for local files, one on each of Spark's disks. */
  val directories: Seq[Path] =
    AgentDirectory.localDirectories().map(parent => AgentDirectory.privateDirectory(Paths.get(parent)))

  /** Returns the first of the directories. */
  def directory: Path = directories.head
  private var agents = 0

  /** Returns the socket for the next agent, in a new directory if a cleaner of temporary files removed the old one. */
  def nextSocket(): Path = synchronized {
    agents += 1
    if (!Files.isDirectory(sockets)) sockets = AgentDirectory.shortDirectory()
    sockets.resolve(s"agent-$agents.sock")
  }

  /** Returns the program that starts an agent, and the archive of its code in the jar; "" if the jar has none. */
  def program(): (Path, String) = synchronized {
    val code = AgentDirectory.createPrivately(directory.resolve("program"))
    val script = Jar.unpack("state-store-agent.py", code).getOrElse(
      throw new IOException("the jar of the state store is incomplete: it has no state-store-agent.py"))
    (script, Jar.unpack(Jar.PythonCode, code).map(_.toString).getOrElse(""))
  }

  def remove(): Unit = (sockets +: directories).foreach { path =>
    try Utils.deleteRecursively(path.toFile)
    catch { case _: IOException => () } // the agent, too, removes them when it ends
  }
}

object AgentDirectory {
  // sun_path has 108 bytes, one of them the terminating zero; leave room for "/agent-123456.sock".
  private val MaxDirectoryBytes = 106 - 20

  /** The version of the package from which this jar was built. */
  lazy val version: String = {
    val properties = new Properties
    Option(getClass.getResourceAsStream("/incremental-state-store.properties")).foreach { in =>
      try properties.load(in)
      finally in.close()
    }
    properties.getProperty("version", "unknown")
  }

  private def localDirectories(): Seq[String] =
    Utils.getOrCreateLocalRootDirs(Option(SparkEnv.get).map(_.conf).getOrElse(new SparkConf)).toSeq

  /** Makes a directory, and its missing parents, for their owner alone; an existing directory stays as it is. */
  def createPrivately(directory: Path): Path =
    if (Files.isDirectory(directory)) directory else Files.createDirectories(directory, ownerOnly)

  private val ownerOnly = PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"))

  private def privateDirectory(parent: Path): Path =
    Files.createTempDirectory(Files.createDirectories(parent), "state-store-", ownerOnly)

  private def shortDirectory(): Path = {
    val own = Paths.get(sys.props("java.io.tmpdir")).toAbsolutePath.normalize
    val bases = Seq(own, fromWorkingDirectory(own)) ++ Seq("/tmp", "/var/tmp", "/dev/shm").map(Paths.get(_))
    val fitting = bases.filter { base =>
      base.resolve("state-store-" + "0" * 20).toString.getBytes.length <= MaxDirectoryBytes && Files.isWritable(base)
    }
    privateDirectory(fitting.headOption.getOrElse(
      throw new IOException(
        s"none of ${bases.mkString(", ")} can hold the socket of the agent: each is too long for the path of " +
          "a Unix socket, or not writable. Set -Djava.io.tmpdir to a short path that can be written.")))
  }

  /**
   * Returns a path relative to the working directory if it is below it; else the path. A container of YARN has its
   * temporary directory there, with a long path, and nobody removes what a killed container left elsewhere.
   */
  private def fromWorkingDirectory(path: Path): Path = {
    val here = Paths.get("").toAbsolutePath
    if (path.startsWith(here) && path != here) here.relativize(path) else path
  }
}

/** Passes an agent's log lines on to the executor's log, and keeps the last ones for error messages. */
private[agent] final class AgentLog(pid: Long) extends Logging {
  private val lastLines = new java.util.ArrayDeque[String]

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
  def tail: String = lastLines.synchronized(lastLines.toArray.mkString("\n"))

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

  private def remember(message: String): Unit = lastLines.synchronized {
    if (lastLines.size == AgentLog.Kept) lastLines.removeFirst()
    lastLines.addLast(message)
  }
}

private object AgentLog {
  val Kept = 20
}

/** Long-lived daemon threads: no error of a step ends them, and a failed start is reported instead of thrown. */
private[incremental] object Supervised extends Logging {
  /**
   * Starts a daemon thread.
   *
   * @return the thread; null if the machine has no thread left, so that the caller tries again later
   */
  def start(name: String)(body: => Unit): Thread = {
    val thread = new Thread(() => body, name)
    thread.setDaemon(true)
    try {
      thread.start()
      thread
    } catch {
      case e: OutOfMemoryError => // "unable to create native thread"
        report(
          s"The thread $name cannot be started; raise the limit of processes or threads of this container or " +
            "user",
          e)
        null
    }
  }

  /**
   * Starts a daemon thread without which the caller cannot go on.
   *
   * @throws AgentException if the machine has no thread left; an OutOfMemoryError would end the executor
   */
  def startOrFail(name: String)(body: => Unit): Thread =
    Option(start(name)(body)).getOrElse(throw noThread(name, null))

  /** Returns the error for a thread that cannot be started. */
  def noThread(name: String, cause: Throwable): AgentException =
    new AgentException("busy",
      s"the thread $name cannot be started: raise the limit of processes or threads of this " +
        "container or user.",
      cause = cause)

  /** Repeats a step as long as `alive` is true. Reports a step that fails, and repeats it after a pause. */
  def repeat(failure: String, alive: => Boolean, pauseMs: Long)(step: => Unit): Unit = while (alive) {
    try step
    catch {
      case e: Throwable if isSurvivable(e) =>
        report(failure, e)
        Thread.sleep(pauseMs)
    }
  }

  /**
   * Runs the work of a pool's thread, and logs its error: Spark ends an executor for any error that a thread does not
   * catch.
   */
  def guarded(failure: => String)(body: => Unit): Unit =
    try body
    catch { case e: Throwable if isSurvivable(e) => report(failure, e) }

  /**
   * Returns true if a thread goes on after this error. A mapped file whose disk fails throws InternalError; neither
   * it nor OutOfMemoryError is `NonFatal`.
   */
  def isSurvivable(e: Throwable): Boolean = e match {
    case _: InterruptedException | _: ControlThrowable => false
    case _: OutOfMemoryError | _: InternalError | _: StackOverflowError | _: LinkageError => true
    case _: VirtualMachineError => false
    case _ => true
  }

  /** Logs an error, even if memory is too short to log it. */
  def report(failure: String, e: Throwable): Unit =
    try logWarning(failure, e)
    catch { case _: OutOfMemoryError => () }
}
