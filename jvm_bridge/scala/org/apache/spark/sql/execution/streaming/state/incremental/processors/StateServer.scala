package org.apache.spark.sql.execution.streaming.state.incremental.processors

import java.io.{BufferedInputStream, BufferedOutputStream, DataInputStream, DataOutputStream, File, IOException}
import java.net.{InetAddress, InetSocketAddress, StandardProtocolFamily, UnixDomainSocketAddress}
import java.nio.channels.{Channels, ClosedChannelException, ServerSocketChannel, SocketChannel}
import java.nio.charset.StandardCharsets.UTF_8
import java.security.SecureRandom
import java.time.Duration
import java.util.{ArrayList, Arrays, List => JavaList, Objects, UUID}
import java.util.concurrent.Executor

import scala.collection.mutable
import scala.runtime.BoxedUnit
import scala.util.control.NonFatal

import net.razorvine.pickle.Unpickler

import org.apache.spark.SparkEnv
import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser
import org.apache.spark.sql.execution.streaming.state.incremental.release.ProcessorHandles
import org.apache.spark.sql.execution.streaming.state.incremental.release.ProcessorHandles.Handle
import org.apache.spark.sql.streaming.TTLConfig
import org.apache.spark.sql.types.StructType

// The server of a Python worker's state: it reads a message, performs the operations on Spark's state variables, and
// writes the answers as pickles.

/**
 * A server that answers the worker's messages about state, on a thread of its own, like Spark's state server of a task.
 *
 * A message and its answer have a length (4 bytes, big-endian) and a pickle each. The first message is the secret. An
 * answer is (status, result): [[StateServer.Done]]; [[StateServer.Refused]] with a text, after which the worker may go
 * on; or [[StateServer.Failed]] with a text, after which the server answers nothing any more.
 */
private[processors] final class StateServer(answers: StateAnswers) extends Runnable with Logging {
  import StateServer._

  private val socketFile: Option[File] = if (wantsFile) Some(newFile()) else None
  private val listening: ServerSocketChannel = socketFile match {
    case Some(file) =>
      ServerSocketChannel.open(StandardProtocolFamily.UNIX).bind(UnixDomainSocketAddress.of(file.getPath), 1)
    case None => ServerSocketChannel.open().bind(new InetSocketAddress(InetAddress.getLoopbackAddress, 0), 1)
  }

  /** The path of a Unix socket, or `host:port`. */
  val address: String = socketFile.map(_.getPath).getOrElse(
    s"${InetAddress.getLoopbackAddress.getHostAddress}:${listening.socket().getLocalPort}")

  /** A text that only the worker of this task knows. */
  val secret: String = {
    val bytes = new Array[Byte](16)
    new SecureRandom().nextBytes(bytes)
    bytes.map(b => f"$b%02x").mkString
  }

  override def run(): Unit =
    try {
      val channel = listening.accept()
      try serve(channel)
      finally channel.close()
    } catch {
      case _: ClosedChannelException => // the task is over
      case OfTheTask(e) => logError("The state server of a processor ended.", e)
    } finally answers.close()

  private def serve(channel: SocketChannel): Unit = {
    if (socketFile.isEmpty) channel.socket().setTcpNoDelay(true)
    val in = new DataInputStream(new BufferedInputStream(Channels.newInputStream(channel), 1 << 16))
    val out = new DataOutputStream(new BufferedOutputStream(Channels.newOutputStream(channel), 1 << 16))
    val pickle = new AnswerPickle
    try {
      if (new Unpickler().loads(read(in)) == secret) {
        var continues = true
        while (continues && !answers.isClosed) {
          val message = read(in)
          val reply = answer(answers.to(new Unpickler().loads(message).asInstanceOf[Array[AnyRef]]))
          continues = reply(0) != Failed
          pickle.write(reply, out)
          out.flush()
        }
      }
    } catch {
      case _: IOException => // the worker is gone
    }
  }

  private def read(in: DataInputStream): Array[Byte] = {
    val message = new Array[Byte](in.readInt())
    in.readFully(message)
    message
  }

  def close(): Unit = {
    listening.close()
    socketFile.foreach(_.delete())
  }
}

private[processors] object StateServer extends Logging {
  final val Done = 0
  final val Refused = 1
  final val Failed = 2

  /**
   * Runs a server in another thread.
   *
   * @throws IOException if the machine has no thread left; an OutOfMemoryError would end the executor
   */
  def start(server: Runnable, threads: Executor): Unit =
    try threads.execute(server)
    catch {
      case e: OutOfMemoryError => throw new IOException(
          "the thread that serves the state of a processor cannot be started: raise the limit of processes or threads " +
            "of this container or user",
          e)
    }

  /** Returns the answer to a message whose result is `result`. An error that ends one task is an answer, too. */
  def answer(result: => Any): Array[Any] =
    try Array[Any](Done, result)
    catch {
      case refusal: RefusedException => Array[Any](Refused, refusal.getMessage)
      case OfTheTask(e) =>
        logError("A call on the state of a processor failed.", e)
        Array[Any](Failed, Option(e.getMessage).getOrElse(e.toString))
    }

  /** Matches the errors that fail a task. In a thread of its own, an OutOfMemoryError would end the executor. */
  private object OfTheTask {
    def unapply(error: Throwable): Option[Throwable] = error match {
      case NonFatal(e) => Some(e)
      case e @ (_: OutOfMemoryError | _: InternalError | _: StackOverflowError | _: LinkageError) => Some(e)
      case _ => None
    }
  }

  private val UnixSockets = "spark.python.unix.domain.socket.enabled"

  private def wantsFile: Boolean = SparkEnv.get.conf.getBoolean(UnixSockets, defaultValue = false)

  private def newFile(): File = {
    val directory = SparkEnv.get.conf.get("spark.python.unix.domain.socket.dir", System.getProperty("java.io.tmpdir"))
    val file = new File(directory, s".${UUID.randomUUID()}.sock")
    file.deleteOnExit()
    file
  }
}

/** An error for a call that Spark's state server refuses with a text, and goes on. */
private[processors] class RefusedException(message: String) extends Exception(message)

/**
 * The answers to the worker's messages, made with Spark's own handle of a processor and its state variables: timers,
 * times to live, formats and metrics are Spark's. For one thread.
 *
 * A message is a tuple whose first element names it:
 * {{{
 *   run      operations, keys, fetches   runs the operations in order; then fetches for each key
 *   declare  kind, name, schema, value schema, time to live in ms
 *   delete   name                        deletes a variable of an earlier run of the query
 *   parse    schema as DDL
 *   state    of the handle, by Spark's name
 *   no_key   forgets the implicit key
 *   expired  moment in ms, max entries   (timers that have expired by then, true if there are more)
 * }}}
 * Operations are one flat list: a code of [[StateAnswers]] and its arguments. `ValueUpdates` and `MapUpdates` are as many
 * updates as they say, of which the last has the value. Fetches are a flat list of code, variable
 * and largest number of entries for each fetch. The answer to `run` has the results of the operations that have one,
 * and the results of the fetches key by key; [[StateAnswers.NotFetched]] stands for a result that did not fit into an
 * answer.
 *
 * @param countUpdates adds to Spark's metric of updates those that were not done, since a later one replaced them
 */
private[processors] final class StateAnswers(
    handle: Handle, keys: WorkerRowCodec, maxMessageBytes: Long, countUpdates: Long => Unit) {
  import StateAnswers._

  private val variables = new mutable.ArrayBuffer[StateVariable]
  private val names = new mutable.HashSet[String]
  private val iterators = new mutable.HashMap[Int, (Iterator[Any], Any => Any)]
  private var present: AnyRef = _
  private var expired: Iterator[(Any, Long)] = _

  def isClosed: Boolean = ProcessorHandles.isClosed(handle)

  def close(): Unit = {
    ProcessorHandles.forgetKey()
    ProcessorHandles.setState(handle, "CLOSED")
  }

  def to(message: Array[AnyRef]): Any = message(0) match {
    case "run" =>
      val results = execute(message(1).asInstanceOf[JavaList[AnyRef]])
      val requestedKeys = message(3).asInstanceOf[JavaList[AnyRef]]
      val fetched =
        if (requestedKeys.isEmpty) new ArrayList[Any]
        else fetch(message(2).asInstanceOf[JavaList[AnyRef]], requestedKeys)
      Array[Any](results, fetched)
    case "declare" => declare(message)
    case "delete" =>
      handle.deleteIfExists(message(1).toString)
      names.remove(message(1).toString)
      null
    case "parse" => CatalystSqlParser.parseTableSchema(message(1).toString).json
    case "state" => ProcessorHandles.setState(handle, message(1).toString)
    case "no_key" => forgetKey()
    case "expired" => expiredTimers(long(message(1)), int(message(2)))
  }

  private def declare(message: Array[AnyRef]): Int = {
    val name = message(2).toString
    val schema = StructType.fromString(message(3).toString)
    val ttl = if (message(5) == null) TTLConfig.NONE else TTLConfig(Duration.ofMillis(long(message(5))))
    val kind = message(1).toString
    if (names(name)) throw new RefusedException(s"${kind.capitalize} state $name already exists.")
    variables += (kind match {
      case "value" => new ValueVariable(handle, name, new WorkerRowCodec(schema), ttl, countUpdates)
      case "list" => new ListVariable(handle, name, new WorkerRowCodec(schema), ttl)
      case "map" =>
        val values = StructType.fromString(message(4).toString)
        new MapVariable(handle, name, new WorkerRowCodec(schema), new WorkerRowCodec(values), ttl, countUpdates)
    })
    names += name
    variables.length - 1
  }

  private def expiredTimers(momentMs: Long, maxEntries: Int): Any = {
    if (expired == null) expired = handle.getExpiredTimers(momentMs)
    val rows = new ArrayList[Any]
    while (rows.size < maxEntries && expired.hasNext) {
      val (key, at) = expired.next()
      rows.add(Array[Any](keys.toPython(key.asInstanceOf[GroupingKey].row), at))
    }
    Array[Any](rows, expired.hasNext)
  }

  /** Sets the implicit key. Iterators of another key end, as in Spark's state server. */
  private def setKey(key: AnyRef): Unit = if (!Objects.deepEquals(key, present)) {
    present = key
    ProcessorHandles.setKey(new GroupingKey(keys.toUnsafe(key), keys))
    iterators.clear()
  }

  private def forgetKey(): Unit = {
    present = null
    ProcessorHandles.forgetKey()
    iterators.clear()
  }

  private def fetch(fetchKeys: JavaList[AnyRef], wanted: JavaList[AnyRef]): JavaList[Any] = {
    val results = new ArrayList[Any](fetchKeys.size * wanted.size / 3)
    var bytes = 0L
    fetchKeys.forEach { key =>
      if (bytes < maxMessageBytes) setKey(key)
      var i = 0
      while (i < wanted.size) {
        val result =
          if (bytes >= maxMessageBytes) NotFetched
          else read(int(wanted.get(i)), int(wanted.get(i + 1)), int(wanted.get(i + 2)))
        bytes += WorkerRowCodec.roughSize(result)
        results.add(result)
        i += 3
      }
    }
    results
  }

  private def read(code: Int, variable: Int, maxEntries: Int): Any = code match {
    case ValueGet => variables(variable).value
    case ListGet => variables(variable).list(maxEntries, maxMessageBytes)
    case MapEntries => variables(variable).entries(maxEntries, maxMessageBytes)
    case TimerList => StateVariable.first(handle.listTimers(), maxEntries, maxMessageBytes)
  }

  private def execute(operations: JavaList[AnyRef]): JavaList[Any] = {
    val results = new ArrayList[Any]
    var i = 0
    var name = ""
    def next(): AnyRef = {
      i += 1
      operations.get(i - 1)
    }
    def variable(): StateVariable = {
      val variable = variables(int(next()))
      name = variable.name
      variable
    }
    while (i < operations.size) {
      int(next()) match {
        case Key => setKey(next())
        case ValueUpdate => variable().update(next())
        case ValueUpdates => variable().update(int(next()), next())
        case Clear => variable().clear()
        case ListAppend => variable().append(next().asInstanceOf[JavaList[AnyRef]])
        case ListAppendOne => variable().appendOne(next())
        case ListPut => variable().put(next().asInstanceOf[JavaList[AnyRef]])
        case MapUpdate => variable().updateEntry(next(), next())
        case MapUpdates => variable().updateEntry(next(), int(next()), next())
        case MapRemove => variable().removeEntry(next())
        case TimerRegister => handle.registerTimer(long(next()))
        case TimerDelete => handle.deleteTimer(long(next()))
        case MapGet => results.add(variable().entry(next()))
        case MapContains => results.add(variable().hasEntry(next()))
        case Exists => results.add(variable().exists)
        case Iterate => results.add(iterate(int(next()), int(next()), int(next()), int(next())))
        case reading => results.add(read(reading, int(next()), int(next())))
      }
    }
    results
  }

  /**
   * Returns the next entries of iterator `id`, and true if there are more. Makes the iterator if the present key has
   * none.
   *
   * @param index the index of the variable; -1 for the timers
   * @param part the part of a map: 0 its entries, 1 its keys, 2 its values
   */
  private def iterate(index: Int, part: Int, id: Int, maxEntries: Int): Any = {
    val (iterator, convert) = iterators.getOrElseUpdate(id,
      if (index < 0) (handle.listTimers(), (timer: Any) => timer) else variables(index).iterator(part))
    val rows = new ArrayList[Any]
    while (rows.size < maxEntries && iterator.hasNext) rows.add(convert(iterator.next()))
    Array[Any](rows, iterator.hasNext)
  }
}

private[processors] object StateAnswers {
  final val Key = 0
  final val ValueGet = 1
  final val ValueUpdate = 2
  final val Clear = 3
  final val ListGet = 4
  final val ListAppend = 5
  final val ListAppendOne = 6
  final val ListPut = 7
  final val MapGet = 8
  final val MapContains = 9
  final val MapUpdate = 10
  final val MapRemove = 11
  final val MapEntries = 12
  final val TimerRegister = 13
  final val TimerDelete = 14
  final val TimerList = 15
  final val Exists = 16
  final val Iterate = 17
  final val ValueUpdates = 18
  final val MapUpdates = 19

  /** The result that stands for a state that did not fit into an answer. */
  final val NotFetched = 0

  private[processors] def int(value: AnyRef): Int = value.asInstanceOf[Number].intValue

  private[processors] def long(value: AnyRef): Long = value.asInstanceOf[Number].longValue
}

/**
 * A writer of answers as pickles (protocol 3), of the few types that answers have: null, booleans, whole numbers,
 * doubles, texts, bytes, arrays as tuples, and lists. A value of another type is a MatchError. A general pickler looks the
 * type of each value up. For one thread.
 */
private[processors] final class AnswerPickle {
  import AnswerPickle._

  private var buffer = new Array[Byte](SmallBytes)
  private var size = 0

  /** Writes the length (4 bytes, big-endian) and the pickle of an answer, and forgets it. */
  def write(answer: Any, out: DataOutputStream): Unit =
    try {
      byte(Proto)
      byte(3)
      value(answer)
      byte('.')
      out.writeInt(size)
      out.write(buffer, 0, size)
    } finally {
      size = 0
      if (buffer.length > LargeBytes) buffer = new Array[Byte](SmallBytes)
    }

  private def value(value: Any): Unit = value match {
    case null | _: BoxedUnit => byte('N')
    case number: java.lang.Long => long(number)
    case text: String => binary('X', text.getBytes(UTF_8))
    case number: java.lang.Double =>
      byte('G')
      bigEndian(java.lang.Double.doubleToRawLongBits(number))
    case flag: java.lang.Boolean => byte(if (flag) True else False)
    case number: java.lang.Integer => int(number)
    case number: java.lang.Short => int(number.toInt)
    case number: java.lang.Byte => int(number.toInt)
    case bytes: Array[Byte] => binary('B', bytes)
    case values: Array[_] => tuple(values)
    case values: JavaList[_] => list(values)
  }

  private def tuple(values: Array[_]): Unit = {
    val isShort = values.length >= 1 && values.length <= 3
    if (!isShort) byte('(')
    var i = 0
    while (i < values.length) {
      value(values(i))
      i += 1
    }
    byte(if (isShort) Tuple1 + values.length - 1 else 't')
  }

  private def list(values: JavaList[_]): Unit = {
    byte(']')
    byte('(')
    var i = 0
    while (i < values.size) {
      value(values.get(i))
      i += 1
    }
    byte('e')
  }

  private def int(number: Int): Unit =
    if (number >= 0 && number < 256) {
      byte('K')
      byte(number)
    } else {
      byte('J')
      littleEndian(number, 4)
    }

  private def long(number: Long): Unit =
    if (number == number.toInt) int(number.toInt)
    else {
      byte(Long1)
      byte(8)
      littleEndian(number, 8)
    }

  private def binary(opcode: Int, bytes: Array[Byte]): Unit = {
    byte(opcode)
    littleEndian(bytes.length, 4)
    reserve(bytes.length)
    System.arraycopy(bytes, 0, buffer, size, bytes.length)
    size += bytes.length
  }

  private def littleEndian(number: Long, bytes: Int): Unit = {
    reserve(bytes)
    var i = 0
    while (i < bytes) {
      buffer(size + i) = (number >>> (8 * i)).toByte
      i += 1
    }
    size += bytes
  }

  private def bigEndian(number: Long): Unit = littleEndian(java.lang.Long.reverseBytes(number), 8)

  private def byte(value: Int): Unit = {
    reserve(1)
    buffer(size) = value.toByte
    size += 1
  }

  private def reserve(bytes: Int): Unit =
    if (size > buffer.length - bytes) {
      val needed = Math.addExact(size, bytes)
      buffer = Arrays.copyOf(buffer, Math.max(needed, Math.min(2L * buffer.length, MaxBytes).toInt))
    }
}

private[processors] object AnswerPickle {
  private final val Proto = 0x80
  private final val Tuple1 = 0x85
  private final val True = 0x88
  private final val False = 0x89
  private final val Long1 = 0x8a

  private val SmallBytes = 1 << 16

  /** The size of a buffer that is not kept for the next answer. */
  private val LargeBytes = 16 << 20
  private val MaxBytes = Int.MaxValue - 16L
}
