package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.{File, IOException}
import java.net.{StandardProtocolFamily, UnixDomainSocketAddress}
import java.nio.ByteBuffer
import java.nio.channels.{ServerSocketChannel, SocketChannel}
import java.nio.file.{Files, Path, Paths}

import scala.util.Random

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.state.incremental.TestFiles
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json

/**
 * Tests with a listener in place of the agent that sends any bytes, asks for files in senseless ways, or is of another
 * user: the JVM gets an IOException or an AgentException, and takes no memory that was only announced. Arguments: seed,
 * rounds.
 */
object HostileAgent {
  def main(arguments: Array[String]): Unit = {
    val directory = Files.createTempDirectory(Paths.get("/tmp"), "hostile-") // a socket's path must be short
    try {
      val test = new HostileAgent(new Random(arguments(0).toLong), directory)
      test.refusesAnotherUser()
      val refused = (1 to arguments(1).toInt).count(_ => test.readsOrRefuses())
      val asked = (1 to arguments(1).toInt).count(_ => test.answersAnything())
      println(s"$refused streams refused, $asked senseless requests answered by errors, nothing else happened")
    } finally TestFiles.delete(directory.toFile)
  }
}

final class HostileAgent(random: Random, directory: Path) {
  private val socket = directory.resolve("s")
  private val files = new FileCalls(new org.apache.hadoop.fs.Path(directory.toUri), new Configuration(false))

  /** Connects to a listener of this user while the JVM expects another user. */
  def refusesAnotherUser(): Unit = serving(_ => ()) {
    val nobody = directory.getFileSystem.getUserPrincipalLookupService.lookupPrincipalByName("nobody")
    val open = SocketChannel.open(UnixDomainSocketAddress.of(socket))
    try {
      require(Files.getOwner(directory) != nobody, "this test cannot run as nobody")
      new AgentConnection(open).checkPeer(socket, Files.getOwner(directory))
      val failure =
        try { new AgentConnection(open).checkPeer(socket, nobody); None }
        catch { case e: IOException => Some(e) }
      require(failure.exists(_.getMessage.contains("which is not the agent")),
        s"another user was not refused: $failure")
    } finally open.close()
  }

  /** Calls a listener that sends random bytes. Returns true if the JVM refused them; some happen to be an answer. */
  def readsOrRefuses(): Boolean = {
    val stream = bytes()
    serving(channel => write(channel, stream)) {
      val connection = AgentConnection.unconnected()
      try {
        connection.connect(socket, "token", if (random.nextBoolean()) AgentConnection.Calls else AgentConnection.Files)
        if (random.nextBoolean()) connection.call(Json.obj("op" -> "ping"))
        else connection.serve(_ => Frame(Json.obj("ok" -> Json.obj())))
        false
      } catch {
        case _: IOException | _: AgentException => true
      } finally connection.close()
    }
  }

  /** Sends a senseless request for a file, which must be answered. Returns true if the answer is an error. */
  def answersAnything(): Boolean = {
    val operation = pick("list", "read", "download", "exists", "none", "", "write")
    val path = pick("", ":", "a:b", "no-such:/x", "\u0000", "x" * 5000, s"$directory/none",
      s"$directory/${0xd800.toChar}", "b:")
    val header = Json.obj("fs" -> operation, "path" -> path, "offset" -> random.nextLong(),
      "length" -> pick[Any](-1, Int.MaxValue, Long.MaxValue, 5, None), "most" -> random.nextInt(),
      "to" -> pick("", "\u0000", s"$directory/none/x"), "upload" -> pick("", "\u0000", s"$directory/none/x"))
    val answer = files.answer(Frame(header)).header
    require(answer.has("ok") != answer.has("error"), s"$header was answered by $answer")
    answer.has("error")
  }

  private def pick[T](choices: T*): T = choices(random.nextInt(choices.length))

  private def bytes(): Array[Byte] = random.nextInt(6) match {
    case 0 => random.nextBytes(random.nextInt(100))
    case 1 => lengths(random.nextInt(), random.nextInt()) ++ random.nextBytes(random.nextInt(100))
    case 2 => lengths(Frame.MaxHeaderBytes, Frame.MaxBodyBytes) ++ random.nextBytes(random.nextInt(100))
    case 3 => (1 to random.nextInt(4)).flatMap(_ => frame(json())).toArray
    case 4 => frame(("[" * 50000 + "]" * 50000).getBytes)
    case _ =>
      val stream = frame("""{"ok":{}}""".getBytes) ++ frame(json())
      stream.take(random.nextInt(stream.length + 1))
  }

  private def json(): Array[Byte] = pick(
    """{"ok":{}}""", """{"ok":1}""", """{"ok":null,"error":[]}""", """{"error":{}}""",
    """{"error":{"kind":7,"message":{}}}""", """{"error":"x"}""",
    """{}""", """[]""", """1e999""", s"""{"ok":{"a":${"9" * 2000}}}""", "\u0000", "{\"ok\":{}", "").getBytes

  private def frame(header: Array[Byte]): Array[Byte] = {
    val body = random.nextBytes(random.nextInt(20))
    lengths(header.length, body.length) ++ header ++ body
  }

  private def lengths(header: Int, body: Int): Array[Byte] = ByteBuffer.allocate(8).putInt(header).putInt(body).array

  private def write(channel: SocketChannel, data: Array[Byte]): Unit = {
    val buffer = ByteBuffer.wrap(data)
    while (buffer.hasRemaining) channel.write(buffer)
  }

  /** Runs the body while a listener acts on its first connection and then closes it. */
  private def serving[T](act: SocketChannel => Unit)(body: => T): T = {
    val listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX)
    listener.bind(UnixDomainSocketAddress.of(socket))
    val thread = new Thread(() => {
      val channel = listener.accept()
      try act(channel)
      catch { case _: IOException => () } // the JVM hung up
      finally channel.close()
    })
    thread.start()
    try body
    finally {
      thread.join()
      listener.close()
      new File(socket.toString).delete()
    }
  }
}
