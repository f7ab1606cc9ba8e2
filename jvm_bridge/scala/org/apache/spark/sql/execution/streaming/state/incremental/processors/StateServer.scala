package org.apache.spark.sql.execution.streaming.state.incremental.processors

import java.io.{
  BufferedInputStream, BufferedOutputStream, DataInputStream, DataOutputStream, EOFException, File, IOException
}
import java.net.{InetAddress, InetSocketAddress, StandardProtocolFamily, UnixDomainSocketAddress}
import java.nio.channels.{Channels, ClosedChannelException, ServerSocketChannel, SocketChannel}
import java.security.SecureRandom
import java.util.concurrent.Executor
import java.util.UUID

import scala.util.control.NonFatal

import net.razorvine.pickle.Unpickler

import org.apache.spark.SparkEnv
import org.apache.spark.internal.Logging

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
      case _: EOFException => // the worker is gone
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
