package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.net.URI
import java.nio.charset.StandardCharsets
import java.nio.file.Files
import java.security.PrivilegedAction
import java.util.concurrent.ConcurrentLinkedQueue

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{Path, RawLocalFileSystem}
import org.apache.hadoop.security.UserGroupInformation

import org.apache.spark.sql.execution.streaming.state.incremental.TestFiles
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json

/** Tests that file requests act for the user who opened the store, whoever's thread is the first to serve one. */
object FileUsers {
  private val openedFor = new ConcurrentLinkedQueue[String]

  private def as[A](name: String)(body: => A): A = {
    val action: PrivilegedAction[A] = () => body
    UserGroupInformation.createRemoteUser(name).doAs(action)
  }

  def main(arguments: Array[String]): Unit = {
    val directory = Files.createTempDirectory("file-users").toFile
    try {
      val conf = new Configuration
      conf.set("fs.users.impl", classOf[FileUsers].getName)
      conf.set("fs.users.impl.disable.cache", "true")
      val root = s"users:$directory"
      val calls = as("alice")(new FileCalls(new Path(root), conf))
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
      require(users.size > 1 && users.forall(_ == "alice"), s"files were opened for ${users.mkString(", ")}")
      println("files are opened for the user of the store")
    } finally TestFiles.delete(directory)
  }
}

/** Local files that note for whom they are opened. */
final class FileUsers extends RawLocalFileSystem {
  override def getUri: URI = URI.create("users:///")

  override def initialize(name: URI, conf: Configuration): Unit = {
    FileUsers.openedFor.add(UserGroupInformation.getCurrentUser.getUserName)
    super.initialize(name, conf)
  }
}
