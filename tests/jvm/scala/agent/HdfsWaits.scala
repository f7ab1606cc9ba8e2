package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.ByteArrayInputStream

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.state.incremental.CheckpointFiles
import org.apache.spark.sql.execution.streaming.state.incremental.checkpoint.Json
import org.apache.spark.sql.execution.streaming.state.incremental.release.SparkNames.FileSystemBasedCheckpointFileManager

/** Tests how soon the client of HDFS asks again, if the user has not set it. */
object HdfsWaits {
  private val prefix = "dfs.client.block.write.locateFollowingBlock"
  private val (delay, retries) = (s"$prefix.initial.delay.ms", s"$prefix.retries")
  private val hdfs = new Path("hdfs://127.0.0.1:1/store")

  /** A manager of files that reports the configuration that it gets, by an exception. */
  final class Telling(path: Path, conf: Configuration) extends FileSystemBasedCheckpointFileManager(path, conf) {
    throw new IllegalStateException(s"first after ${conf.get(delay)} ms")
  }

  private def ofFileCalls(): String = {
    val conf = new Configuration(false)
    conf.set("spark.sql.streaming.checkpointFileManagerClass", classOf[Telling].getName)
    val request = Frame(Json.obj("fs" -> "exists", "path" -> hdfs.toString))
    new FileCalls(hdfs, conf).answer(request).header.toString
  }

  private def ofCheckpointFiles(): String = {
    val conf = new Configuration(false)
    conf.set("spark.sql.streaming.checkpointFileManagerClass", classOf[Telling].getName)
    try new CheckpointFiles(hdfs, conf).toString
    catch { case e: Throwable => Iterator.iterate(e)(_.getCause).takeWhile(_ != null).mkString(" ") }
  }

  def main(arguments: Array[String]): Unit = {
    val plain = new Configuration(false)
    val prompt = ImpatientHdfsClient.of(hdfs, plain)
    val seconds = (0 until prompt.getInt(retries, 5)).map(n => prompt.getInt(delay, 400) << n).sum / 1000
    require(prompt.getInt(delay, 400) < 20 && seconds > 12,
      s"it asks for $seconds s, first after ${prompt.get(delay)} ms")
    require(plain.get(delay) == null, "the configuration of others has changed")
    require(ImpatientHdfsClient.of(hdfs, plain) eq prompt, "each store has a configuration of its own")
    for (other <- Seq("file:/store", "s3a://bucket/store"))
      require(ImpatientHdfsClient.of(new Path(other), plain) eq plain, other)
    for (name <- Seq(delay, retries)) {
      val chosen = new Configuration(false)
      chosen.set(name, "7")
      require(ImpatientHdfsClient.of(hdfs, chosen) eq chosen, s"$name is not left as it was set")
    }
    val shipped = new Configuration(false)
    val xml = s"<configuration><property><name>$delay</name><value>400</value></property></configuration>"
    shipped.addResource(new ByteArrayInputStream(xml.getBytes("US-ASCII")), "hdfs-default.xml")
    require(ImpatientHdfsClient.of(hdfs, shipped).getInt(delay, 400) < 20, "a default of Hadoop counts as set")
    require(ofFileCalls().contains("first after 10 ms"), s"files are made otherwise: ${ofFileCalls()}")
    require(ofCheckpointFiles().contains("first after 10 ms"), s"logs are made otherwise: ${ofCheckpointFiles()}")
    println("settings of the user stay")
  }
}
