package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.{Closeable, EOFException, IOException}
import java.net.{StandardProtocolFamily, UnixDomainSocketAddress}
import java.nio.ByteBuffer
import java.nio.channels.SocketChannel
import java.nio.file.Path

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json

/** A header and a body, as docs/protocol.md frames them. */
final case class Frame(header: ObjectNode, body: Array[Byte] = Frame.NoBody)

object Frame {
  val NoBody: Array[Byte] = Array.emptyByteArray
  val MaxHeaderBytes: Int = 16 << 20
  val MaxBodyBytes: Int = 64 << 20
}

/**
 * One connection to an agent: one call at a time, with the agent's nested calls answered on the way.
 *
 * Used by one thread at a time; `close` may come from any. Every failure of the socket is an IOException,
 * after which the connection is of no use.
 */
final class AgentConnection private (channel: SocketChannel) extends Closeable {
  private val lengths = ByteBuffer.allocateDirect(8)
  private val chunk = ByteBuffer.allocateDirect(64 << 10)

  /**
   * Sends the request and returns the fields of the answer's `ok`.
   *
   * @param nested answers the agent's file system calls
   * @throws AgentException where the agent answers with an error
   */
  def call(request: ObjectNode, nested: Frame => Frame): ObjectNode = {
    send(Frame(request))
    var frame = receive()
    while (frame.header.has("fs")) {
      send(nested(frame))
      frame = receive()
    }
    AgentConnection.answer(frame.header)
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

  private def checked(length: Int, most: Int): Int =
    if (length >= 0 && length <= most) length
    else throw new IOException(s"the agent announces ${length & 0xffffffffL} bytes, $most are allowed")

  private def ended() = new EOFException("the agent closed the connection")
}

object AgentConnection {
  /** Connects and shows the token; throws IOException where nobody listens or the token is refused. */
  def open(socket: Path, token: String): AgentConnection = {
    val channel = SocketChannel.open(StandardProtocolFamily.UNIX)
    try {
      channel.connect(UnixDomainSocketAddress.of(socket))
      val connection = new AgentConnection(channel)
      connection.call(
        Json.obj("token" -> token), _ => throw new IOException("the agent called before it was asked"))
      connection
    } catch {
      case e: Throwable =>
        channel.close()
        throw e
    }
  }

  private def answer(header: ObjectNode): ObjectNode = (header.get("ok"), header.get("error")) match {
    case (ok: ObjectNode, _) => ok
    case (_, error: ObjectNode) =>
      throw new AgentException(
        Json.text(error, "kind").getOrElse("internal"), Json.text(error, "message").getOrElse("no message"),
        Json.text(error, "file"), Json.text(error, "option"))
    case _ => throw new IOException("the agent's answer has neither ok nor error")
  }
}
