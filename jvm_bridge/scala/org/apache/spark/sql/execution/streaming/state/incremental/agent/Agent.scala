package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.{Closeable, EOFException, IOException}
import java.net.{StandardProtocolFamily, UnixDomainSocketAddress}
import java.nio.ByteBuffer
import java.nio.channels.{ClosedByInterruptException, SocketChannel}
import java.nio.file.{Files, Path}
import java.nio.file.attribute.UserPrincipal
import java.util.concurrent.{ConcurrentHashMap, ConcurrentLinkedDeque, ScheduledThreadPoolExecutor, TimeUnit}
import java.util.concurrent.atomic.AtomicBoolean

import scala.annotation.tailrec
import scala.collection.mutable
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.node.ObjectNode
import jdk.net.ExtendedSocketOptions

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json
import org.apache.spark.util.{ShutdownHookManager, ThreadUtils}

// Calls to the agent of this JVM: a call takes a connection and writes a frame; if the process died, another is
// started and the call is repeated. Events come over a connection of their own.

/** Settings of an agent, which serves the whole executor: those of the query that first needs it. */
private[agent] final case class AgentSettings(logLevel: String, startTimeoutMs: Long)

/**
 * The agent of this JVM, as a process that is replaced: the first call starts it, another takes its place if it dies or
 * hangs, and it ends with the JVM. Safe for any thread.
 */
final class Agent private (python: Interpreter) extends Logging {
  private lazy val directory = new AgentDirectory
  private val files = new FileServers
  private val listeners = new EventListeners
  private var current: AgentProcess = _
  private var events: AgentEvents = _
  private val lent = new LentConnections
  private var stopped = false

  // Read without the lock, which a thread holds while it starts an agent.
  @volatile private var startedAgain = 0L

  /** Returns how often another agent took the place of one that had died or hung. Waits for nothing. */
  def restarts: Long = startedAgain

  /**
   * Makes one call of docs/protocol.md. If the agent dies, another is started and asked again: every operation of the
   * protocol allows it. If the agent gives no answer in time, the call fails; only an agent that does not answer a ping
   * either is replaced, and its successor asked again.
   *
   * @param request makes the request for each agent that is asked: it lists the stores that this JVM has open by then
   * @param timeoutMs bound of each attempt, in milliseconds
   * @param option the option that sets this bound, for the message
   * @return the fields of the answer's `ok`
   * @throws AgentException with the agent's own error; of kind `busy` if the call took too long, of kind `internal` if
   *                        agents keep dying
   */
  def call(request: () => ObjectNode, timeoutMs: Long, settings: AgentSettings, option: String): ObjectNode =
    attempt(request, timeoutMs, settings, option, Agent.Attempts)

  /**
   * Makes a call whose loss does no harm: it starts no agent, and is not repeated.
   *
   * @return the answer; None if no agent runs
   */
  private[agent] def tell(request: ObjectNode, timeoutMs: Long): Option[ObjectNode] =
    synchronized(Option(current)).filter(_.isAlive).map(_.connections.call(request, timeoutMs))

  /** Returns the merges that run or wait; none if the agent does not run or does not answer in time. */
  private def currentMerges(timeoutMs: Long): Seq[CurrentMerge] =
    try synchronized(Option(current)).filter(_.isAlive).toSeq
        .flatMap(process => Answers.currentMerges(process.connections.call(Json.obj("op" -> "status"), timeoutMs)))
    catch {
      case NonFatal(e) =>
        logDebug("The agent did not list its merges", e)
        Nil
    }

  /** Lets the agent ask for the files of a store, and the listener receive the events of the store. */
  def register(store: Long, storeFiles: FileCalls, listener: AgentEvent => Unit): Unit = {
    files.add(store, storeFiles)
    listeners.add(store, listener)
  }

  /**
   * Notes that a store is closed.
   *
   * @param owed the call that closed it, if the agent still makes a merge of it, and reads and writes its files until
   *             the event `closed`
   */
  def unregister(store: Long, owed: Option[ObjectNode]): Unit = {
    listeners.remove(store)
    owed.fold(files.remove(store))(files.keepUntilClosed(store, _))
  }

  /**
   * Closes the stores again of which the agent before owed a merge: their local files are still there, and the merge is
   * made when the next provider needs one. If this agent ends as well, the next repeats it.
   */
  private def closeAgain(process: AgentProcess): Unit = {
    val closes = files.closes
    if (closes.nonEmpty) Supervised.start(s"state-store-closes-${process.pid}") {
      for ((store, close) <- closes)
        try if (!process.connections.call(close, Agent.PingMs).path("owed").asBoolean) files.remove(store)
        catch { case NonFatal(e) => logWarning(s"The agent did not close a store again: ${e.getMessage}") }
    }
  }

  private def handle(event: AgentEvent): Unit = event match {
    case StoreClosed(store) => files.remove(store)
    case _ => listeners.tell(event)
  }

  /** Lends the agent at least this many connections for file requests. */
  private[agent] def lend(connections: Int): Unit = synchronized {
    lent.want(connections)
    if (current != null && current.isAlive) lendTo(current)
  }

  /** Returns the process id of the running agent, for diagnosis and tests. */
  def pid: Option[Long] = synchronized(Option(current).filter(_.isAlive).map(_.pid))

  @tailrec
  private def attempt(
      request: () => ObjectNode,
      timeoutMs: Long,
      settings: AgentSettings,
      option: String,
      left: Int): ObjectNode = {
    val process = running(settings)
    val message = request()
    val op = message.path("op").asText
    val outcome: Either[IOException, ObjectNode] =
      try Right(process.connections.call(message, timeoutMs))
      catch {
        case e: ClosedByInterruptException => throw e // Spark kills the task; the agent works
        case e: CallTimeout if process.connections.answersWithin(math.min(timeoutMs, Agent.PingMs)) =>
          throw Agent.tooSlow(op, timeoutMs, option, e)
        case e: IOException => Left(e)
      }
    outcome match {
      case Right(answer) => answer
      case Left(e) if left <= 1 =>
        process.end()
        throw new AgentException("internal",
          s"agents died ${Agent.Attempts} times in a row during the " +
            s"call '$op': ${process.exitDescription}",
          cause = e)
      case Left(e) =>
        val failure =
          if (e.isInstanceOf[CallTimeout]) "The agent hangs during the call"
          else "The agent was lost during the call"
        logWarning(s"$failure '$op' (${e.getMessage}); asking another. ${process.exitDescription}")
        process.end()
        attempt(request, timeoutMs, settings, option, left - 1)
    }
  }

  private def running(settings: AgentSettings): AgentProcess = synchronized {
    if (stopped) throw new AgentException("busy", "the JVM is shutting down")
    if (current == null || !current.isAlive) {
      if (current != null) startedAgain += 1
      current = start(settings, Agent.Attempts)
      lent.lackAll()
      lendTo(current)
      closeAgain(current)
      events = new AgentEvents(current, handle)
    }
    lendTo(current)
    events.ensureRunning()
    current
  }

  @tailrec
  private def start(settings: AgentSettings, left: Int): AgentProcess = {
    val outcome =
      try Right(AgentProcess.start(python, directory, settings.logLevel, settings.startTimeoutMs))
      catch { case e: AgentKilled => Left(e) }
    outcome match {
      case Right(process) => process
      case Left(e) if left <= 1 =>
        throw new AgentException("internal",
          s"agents were killed ${Agent.Attempts} times in a row before they " +
            s"answered: ${e.getMessage}",
          cause = e)
      case Left(e) =>
        logWarning(s"The agent was killed before it answered; starting another. ${e.getMessage}")
        start(settings, left - 1)
    }
  }

  /** Starts threads that serve files. The next call tries again to start those that could not be started. */
  private def lendTo(process: AgentProcess): Unit =
    lent.add(FileServer.start(process, files, s"state-store-files-${process.pid}"))

  private def stop(): Unit = {
    val last = synchronized {
      stopped = true
      Option(current)
    }
    last.foreach { process =>
      process.stop(Agent.StopMs)
      directory.remove()
    }
  }
}

/** The connections that an agent is lent: how many it wants, and how many of them it lacks. The caller locks. */
private[agent] final class LentConnections {
  private var total = 0
  private var lacking = 0

  /** Notes that the agent wants at least this many. */
  def want(connections: Int): Unit = {
    lacking += math.max(0, connections - total)
    total = math.max(total, connections)
  }

  /** Notes that another agent, which has none, has taken the place of the one before. */
  def lackAll(): Unit = lacking = total

  /** Adds connections until the agent lacks none, or one cannot be added, as `start` says. */
  def add(start: => Boolean): Unit = while (lacking > 0 && start) lacking -= 1
}

object Agent {
  private val Attempts = 4
  private val StopMs = 5000L
  // A busy agent answers a ping at once; one that swaps or computes much may need seconds.
  private val PingMs = 10000L
  // After the SparkContext and before Spark's temporary directories, which hold ours.
  private val ShutdownPriority = 30

  private val agents = mutable.Map.empty[String, Agent]

  /** Returns the agent of this JVM that runs on an interpreter, and starts nothing. */
  def of(python: Interpreter): Agent = agents.synchronized {
    if (agents.isEmpty) ShutdownHookManager.addShutdownHook(ShutdownPriority)(() => stopAll())
    agents.getOrElseUpdate(python.executable, new Agent(python))
  }

  /**
   * Returns the merges of this JVM's agents that run or wait.
   *
   * @param timeoutMs how long each agent may take to answer
   */
  def currentMerges(timeoutMs: Long): Seq[CurrentMerge] =
    agents.synchronized(agents.values.toSeq).flatMap(_.currentMerges(timeoutMs))

  private def stopAll(): Unit = agents.synchronized(agents.values.toSeq).foreach(_.stop())

  private def tooSlow(op: String, timeoutMs: Long, option: String, cause: Throwable): AgentException =
    new AgentException("busy",
      s"the call '$op' took longer than $timeoutMs ms; the agent works otherwise, " +
        "and goes on with it. The executor's log has its steps; if storage is slow or the state is large, " +
        s"raise $option.",
      option = Some(option), cause = cause)
}

/**
 * The connections of this JVM to one agent, of which those without a call are kept for the next. Safe for any thread.
 *
 * @param socket the socket of the agent
 * @param token shows the agent that this JVM started it
 * @param isAlive true as long as the agent lives
 */
private[agent] final class AgentConnections(socket: Path, token: String, isAlive: => Boolean) extends Logging {
  private val idle = new ConcurrentLinkedDeque[AgentConnection]

  /**
   * Makes one call.
   *
   * @return the fields of the answer's `ok`
   * @throws AgentException if the agent answers with an error
   * @throws CallTimeout if the answer does not come in time
   * @throws java.io.IOException if the connection breaks, usually because the agent died
   */
  def call(request: ObjectNode, timeoutMs: Long): ObjectNode = {
    val idleConnection = Option(idle.pollFirst())
    val connection = idleConnection.getOrElse(AgentConnection.unconnected())
    var isConnected = idleConnection.nonEmpty
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
    } finally if (reusable && connection.isOpen && isAlive) idle.addFirst(connection) else connection.close()
  }

  /** Returns true if the agent answers a ping on a new connection within the time; otherwise it hangs. */
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

  /** Serves requests of the agent for files, in the calling thread, until the connection ends (IOException). */
  def serve(answer: Frame => Frame): Unit = {
    val connection = AgentConnection.unconnected()
    try {
      connection.connect(socket, token, AgentConnection.Files)
      connection.serve(answer)
    } finally connection.close()
  }

  /** Closes the connections without a call. */
  def close(): Unit =
    Iterator.continually(idle.pollFirst()).takeWhile(_ != null).foreach { connection =>
      try connection.close()
      catch { case NonFatal(e) => logDebug("A connection to an agent that has ended could not be closed", e) }
    }
}

/** Closes a resource that is overdue, so that the thread that waits for it gets an exception. */
private[agent] object Watchdog {
  private lazy val timer: ScheduledThreadPoolExecutor = {
    val executor = new ScheduledThreadPoolExecutor(1, ThreadUtils.namedThreadFactory("state-store-watchdog"))
    executor.setRemoveOnCancelPolicy(true)
    executor
  }

  /**
   * Runs the body; if it takes longer than `timeoutMs`, closes the resource. It is closed before this returns, or it is
   * not closed afterwards.
   *
   * @throws CallTimeout    if it took longer
   * @throws AgentException if the thread of the watchdog cannot be started
   */
  def bounded[T](resource: Closeable, timeoutMs: Long)(body: => T): T = {
    val isOver = new AtomicBoolean
    val overdue: Runnable = () => if (isOver.compareAndSet(false, true)) resource.close()
    val alarm =
      try timer.schedule(overdue, timeoutMs, TimeUnit.MILLISECONDS)
      catch { case e: OutOfMemoryError => throw Supervised.noThread("state-store-watchdog", e) }
    try body
    catch {
      case e: IOException if isOver.get => throw new CallTimeout(timeoutMs, e)
    } finally {
      alarm.cancel(false)
      if (!isOver.compareAndSet(false, true)) resource.close()
    }
  }
}

/** The failure of a call to the agent that took too long. */
private[agent] final class CallTimeout(val timeoutMs: Long, cause: Throwable)
    extends IOException(s"no answer from the agent within $timeoutMs ms", cause)

/** A header and a body, framed as docs/protocol.md says. */
private[agent] final case class Frame(header: ObjectNode, body: Array[Byte] = Frame.NoBody)

private[agent] object Frame {
  val NoBody: Array[Byte] = Array.emptyByteArray
  val MaxHeaderBytes: Int = 16 << 20
  val MaxBodyBytes: Int = 64 << 20
}

/**
 * A connection to an agent: for calls to the agent, one at a time, or for requests of the agent that are served here.
 *
 * A single thread at a time uses it; any thread may close it. Every failure of the socket is an IOException, after
 * which the connection is of no use.
 */
final class AgentConnection private[agent] (channel: SocketChannel) extends Closeable {
  private val lengths = ByteBuffer.allocateDirect(8)
  private val chunk = ByteBuffer.allocateDirect(64 << 10)

  /**
   * Connects, shows the token and says the purpose. Call it once.
   *
   * @param socket lies in a directory that this JVM made, so that the listener must be of the same user
   * @param purpose `Calls` or `Files`
   * @throws java.io.IOException if nobody listens, or another user does, to whom the token is not shown
   * @throws AgentException if the agent refuses
   */
  def connect(socket: Path, token: String, purpose: String): Unit = {
    channel.connect(UnixDomainSocketAddress.of(socket))
    checkPeer(socket, Files.getOwner(socket.getParent))
    call(Json.obj("token" -> token, "for" -> purpose))
  }

  private[agent] def checkPeer(socket: Path, own: UserPrincipal): Unit = {
    val user = channel.getOption(ExtendedSocketOptions.SO_PEERCRED).user
    if (user != own) throw new IOException(s"a process of user $user listens at $socket, which is not the agent")
  }

  /**
   * Sends the request and returns the fields of the answer's `ok`.
   *
   * @throws AgentException if the agent answers with an error
   */
  def call(request: ObjectNode): ObjectNode = {
    send(Frame(request))
    AgentConnection.answer(receive().header)
  }

  /** Answers the requests of the agent until the connection ends, which is an IOException. */
  def serve(answer: Frame => Frame): Nothing = {
    while (true) send(answer(receive()))
    throw new AssertionError("unreachable")
  }

  override def close(): Unit = channel.close()

  /** Returns false after [[close]], whoever called it. */
  private[agent] def isOpen: Boolean = channel.isOpen

  private def send(frame: Frame): Unit = {
    val header = Json.bytes(frame.header)
    lengths.clear()
    lengths.putInt(header.length).putInt(frame.body.length).flip()
    while (lengths.hasRemaining) channel.write(lengths)
    write(header)
    write(frame.body)
  }

  private def receive(): Frame = {
    lengths.clear()
    while (lengths.hasRemaining) if (channel.read(lengths) < 0) throw ended()
    lengths.flip()
    val headerBytes = checked(lengths.getInt(), Frame.MaxHeaderBytes)
    val bodyBytes = checked(lengths.getInt(), Frame.MaxBodyBytes)
    Frame(Json.parse(read(headerBytes)), read(bodyBytes))
  }

  private def write(bytes: Array[Byte]): Unit = {
    var at = 0
    while (at < bytes.length) {
      chunk.clear()
      val length = math.min(bytes.length - at, chunk.capacity)
      chunk.put(bytes, at, length).flip()
      while (chunk.hasRemaining) channel.write(chunk)
      at += length
    }
  }

  private def read(length: Int): Array[Byte] = {
    val bytes = if (length == 0) Frame.NoBody else new Array[Byte](length)
    var at = 0
    while (at < length) {
      chunk.clear().limit(math.min(length - at, chunk.capacity))
      if (channel.read(chunk) < 0) throw ended()
      chunk.flip()
      val got = chunk.remaining
      chunk.get(bytes, at, got)
      at += got
    }
    bytes
  }

  private def checked(length: Int, limit: Int): Int =
    if (length >= 0 && length <= limit) length
    else throw new IOException(s"the agent announces ${length & 0xffffffffL} bytes, $limit are allowed")

  private def ended() = new EOFException("the agent closed the connection")
}

object AgentConnection {
  /** The purposes of connections: calls to the agent, or requests of the agent for files. */
  val Calls = "calls"
  val Files = "files"

  /** Returns a connection that is not connected yet. Closing it ends a `connect` that waits. */
  def unconnected(): AgentConnection = new AgentConnection(SocketChannel.open(StandardProtocolFamily.UNIX))

  private def answer(header: ObjectNode): ObjectNode = (header.get("ok"), header.get("error")) match {
    case (ok: ObjectNode, _) => ok
    case (_, error: ObjectNode) => throw Answers.error(error)
    case _ => throw new IOException("the agent's answer has neither ok nor error")
  }
}

/**
 * Polls an agent for its events, on a daemon thread that ends with the agent and not before: nothing that a poll or an
 * event's handler throws ends it, be it an OutOfMemoryError or the InternalError of a mapped file. The next poll
 * acknowledges an event, so that none is lost when the connection breaks. The agent may then repeat an event under its
 * number, which is handled once.
 *
 * @param name name of the thread
 * @param isAlive returns true as long as the agent lives
 * @param call asks the agent, within a time in milliseconds
 * @param handle takes the events in their order; its exceptions are logged
 */
private[agent] final class AgentEvents(
    name: String,
    isAlive: () => Boolean,
    call: (ObjectNode, Long) => ObjectNode,
    handle: AgentEvent => Unit)
    extends Logging {
  def this(process: AgentProcess, handle: AgentEvent => Unit) =
    this(s"state-store-agent-${process.pid}-events", () => process.isAlive, process.connections.call, handle)

  @volatile private var handled = 0L
  @volatile private var thread: Thread = _

  /** Starts the thread if it does not run: at first, and again if it could not be started or has ended. */
  def ensureRunning(): Unit =
    if (thread == null || !thread.isAlive) synchronized {
      if (thread == null || !thread.isAlive) thread = Supervised.start(name)(run())
    }

  private def run(): Unit = while (isAlive()) {
    try poll()
    catch {
      case e: IOException =>
        logQuietly(logDebug("The connection for events broke", e))
        pause()
      case e: Throwable =>
        logQuietly(logWarning("The agent's events cannot be read; they are asked for again", e))
        pause()
    }
  }

  private def pause(): Unit =
    try if (isAlive()) Thread.sleep(AgentEvents.RetryPauseMs)
    catch { case _: InterruptedException => () } // nobody interrupts this thread with a purpose

  /** Logs, unless memory is too short for that. */
  private def logQuietly(log: => Unit): Unit =
    try log
    catch { case _: Throwable => () }

  private def poll(): Unit = {
    val request = Json.obj("op" -> "events", "after" -> handled, "wait_ms" -> AgentEvents.WaitMs)
    Answers.events(call(request, AgentEvents.WaitMs + AgentEvents.GraceMs)).foreach {
      case (number, event) if number > handled =>
        try handle(event)
        catch { case e: Throwable => logQuietly(logWarning(s"An event of the agent was not handled: $event", e)) }
        handled = number
      case _ => () // handled before the connection broke
    }
  }
}

private object AgentEvents {
  val WaitMs = 30000L
  val GraceMs = 60000L
  val RetryPauseMs = 100L
}

/** Listeners for events, by the number of a store's provider. Safe for any thread. */
private[agent] final class EventListeners {
  private val listeners = new ConcurrentHashMap[Long, AgentEvent => Unit]

  def add(store: Long, listener: AgentEvent => Unit): Unit = listeners.put(store, listener)

  def remove(store: Long): Unit = listeners.remove(store)

  /** Passes an event on. Drops events of a store that is closed: its directories are gone. */
  def tell(event: AgentEvent): Unit = Option(listeners.get(event.store)).foreach(_(event))
}
