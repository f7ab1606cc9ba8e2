package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.{Closeable, EOFException, IOException}
import java.net.{StandardProtocolFamily, UnixDomainSocketAddress}
import java.nio.ByteBuffer
import java.nio.channels.SocketChannel
import java.nio.file.{Files, Path}
import java.nio.file.attribute.UserPrincipal

import jdk.net.ExtendedSocketOptions

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json

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
