package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.net.URI
import java.nio.charset.StandardCharsets
import java.nio.file.Files
import java.security.PrivilegedAction
import java.util.concurrent.ConcurrentLinkedQueue

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{Path, RawLocalFileSystem}
import org.apache.hadoop.io.Text
import org.apache.hadoop.security.{Credentials, UserGroupInformation}
import org.apache.hadoop.security.token.{Token, TokenIdentifier}

import org.apache.spark.sql.execution.streaming.state.incremental.TestFiles
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json

/**
 * Tests that file requests act for the user who opened the store, whoever's thread is the first to serve one, with the
 * tokens that the user has by then: Spark adds renewed ones to the user of the executor.
 */
object FileUsers {
  private val openedFor = new ConcurrentLinkedQueue[String]

  private def as[A](name: String)(body: => A): A = as(UserGroupInformation.createRemoteUser(name))(body)

  private def as[A](user: UserGroupInformation)(body: => A): A = {
    val action: PrivilegedAction[A] = () => body
    user.doAs(action)
  }

  private def newToken(text: String): Token[TokenIdentifier] = {
    val bytes = text.getBytes(StandardCharsets.US_ASCII)
    new Token[TokenIdentifier](bytes, bytes, new Text("kind"), new Text("service"))
  }

  /** Adds a token to the current user as an executor of Spark does, which replaces the one from before. */
  private def addToken(text: String): Unit = {
    val sent = new Credentials
    sent.addToken(new Text("alias"), newToken(text))
    UserGroupInformation.getCurrentUser.addCredentials(sent)
  }

  def main(arguments: Array[String]): Unit = {
    val directory = Files.createTempDirectory("file-users").toFile
    try {
      val conf = new Configuration
      conf.set("fs.users.impl", classOf[FileUsers].getName)
      conf.set("fs.users.impl.disable.cache", "true")
      val root = s"users:$directory"
      val alice = UserGroupInformation.createRemoteUser("alice")
      as(alice)(addToken("old"))
      val calls = as(alice)(new FileCalls(new Path(root), conf))
      as(alice)(addToken("renewed"))
      require(openedFor.isEmpty, "files are opened before the first request")
      as("bob") {
        val body = "abc".getBytes(StandardCharsets.US_ASCII)
        for (header <- Seq(
            Json.obj("fs" -> "write", "path" -> s"$root/a", "overwrite" -> true),
            Json.obj("fs" -> "write", "path" -> s"$root/a", "overwrite" -> true), // looks at the file that is there
            Json.obj("fs" -> "read", "path" -> s"$root/a", "offset" -> 1, "length" -> 2))) {
          val answer = calls.answer(Frame(header, body)).header
          require(answer.has("ok"), s"$header: $answer")
        }
      }
      val users = openedFor.asScala.toSeq
      require(users.size > 1 && users.forall(_ == "alice with renewed"),
        s"files were opened for ${users.mkString(", ")}")
      println("files are opened for the user of the store, with renewed tokens")
    } finally TestFiles.delete(directory)
  }
}

/** Local files that note for whom, and with which tokens, they are opened. */
final class FileUsers extends RawLocalFileSystem {
  override def getUri: URI = URI.create("users:///")

  override def initialize(name: URI, conf: Configuration): Unit = {
    val user = UserGroupInformation.getCurrentUser
    val tokens = user.getTokens.asScala.map(token => new String(token.getIdentifier, StandardCharsets.US_ASCII))
    FileUsers.openedFor.add(s"${user.getUserName} with ${tokens.mkString(" and ")}")
    super.initialize(name, conf)
  }
}
