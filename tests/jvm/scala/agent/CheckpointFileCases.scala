package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.FileNotFoundException
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path => Local, Paths}
import java.nio.file.attribute.PosixFilePermissions
import java.util.concurrent.{Callable, CountDownLatch, Executors}

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{ChecksumException, FileAlreadyExistsException, FileSystem, Path}

import org.apache.spark.sql.execution.streaming.state.incremental.CheckpointFiles
import org.apache.spark.sql.execution.streaming.state.incremental.release.SparkNames.CheckpointFileManager

/** Tests that compare checkpoint files of this store's manager with Spark's, in directories below the one given. */
object CheckpointFileCases {
  private val umask = "fs.permissions.umask-mode"

  private def check(failure: String, holds: => Boolean): Unit = if (!holds) throw new AssertionError(failure)

  private def fails[E <: Throwable](failure: String, kind: Class[E])(body: => Unit): Unit =
    check(failure,
      try { body; false }
      catch { case e: Throwable => kind.isInstance(e) })

  private def write(files: CheckpointFileManager, path: Path, text: String, overwrite: Boolean): Unit = {
    val out = files.createAtomic(path, overwrite)
    text.getBytes(UTF_8).grouped(100).foreach(out.write(_))
    out.close()
  }

  private def read(files: CheckpointFileManager, path: Path): String = {
    val in = files.open(path)
    try new String(in.readAllBytes(), UTF_8)
    finally in.close()
  }

  /** Returns the text of a file that its checksums confirm: Hadoop's FileSystem compares them, its FileContext not. */
  private def verified(path: Path): String = {
    val in = FileSystem.getLocal(new Configuration()).open(path)
    try new String(in.readAllBytes(), UTF_8)
    finally in.close()
  }

  private def tree(directory: Local): Map[String, String] = {
    val walk = Files.walk(directory)
    try walk.iterator.asScala.map { file =>
        val mode = PosixFilePermissions.toString(Files.getPosixFilePermissions(file))
        val bytes = if (Files.isDirectory(file)) "" else java.util.Arrays.toString(Files.readAllBytes(file))
        directory.relativize(file).toString -> s"$mode $bytes"
      }.toMap
    finally walk.close()
  }

  /** Writes a log over its life; both managers write the same names, contents, permissions and checksums. */
  private def live(files: CheckpointFileManager, root: Path): Unit = {
    files.createCheckpointDirectory()
    val log = new Path(root, "offsets of a log")
    files.mkdirs(new Path(log, "below"))
    write(files, new Path(log, "0"), "v1\n" * 700, overwrite = false)
    write(files, new Path(log, "1"), "x" * 1024, overwrite = false)
    write(files, new Path(log, "2"), "", overwrite = false)
    write(files, new Path(log, "1"), "newer", overwrite = true)
    files.createAtomic(new Path(log, "3"), overwriteIfPossible = false).cancel()
    write(files, new Path(log, "4"), "goes", overwrite = false)
    files.delete(new Path(log, "4"))
  }

  private def sameAsSparks(root: Local, mask: String): Unit = {
    val conf = new Configuration()
    conf.set(umask, mask)
    val trees = Seq(true, false).map { own =>
      val directory = root.resolve(s"$mask-$own")
      val path = new Path(directory.toUri)
      live(if (own) new CheckpointFiles(path, conf) else CheckpointFileManager.create(path, conf), path)
      tree(directory)
    }
    check(s"the files differ under $mask: ${trees.map(_.toSeq.sorted.mkString("\n")).mkString("\nand\n")}",
      trees.head == trees.last)
  }

  /** Lets many writers make a file that must not exist: one of them wins, and its file is whole. */
  private def oneWriterWins(files: CheckpointFileManager, root: Path): Unit = {
    val writers = 8
    val pool = Executors.newFixedThreadPool(writers)
    try for (round <- 0 until 40) {
        val path = new Path(root, s"raced-$round")
        val start = new CountDownLatch(1)
        val won = (0 until writers).map { writer =>
          pool.submit(new Callable[Option[Int]] {
            override def call(): Option[Int] = {
              val out = files.createAtomic(path, overwriteIfPossible = false)
              out.write((s"$writer " * 500).getBytes(UTF_8))
              start.await()
              try { out.close(); Some(writer) }
              catch { case _: FileAlreadyExistsException => None }
            }
          })
        }
        start.countDown()
        val winners = won.flatMap(_.get)
        check(s"${winners.size} writers won", winners.size == 1)
        check("the file is not the winner's", read(files, path) == s"${winners.head} " * 500)
      }
    finally pool.shutdown()
  }

  private def neverHalf(files: CheckpointFileManager, root: Path): Unit = {
    val path = new Path(root, "half")
    val out = files.createAtomic(path, overwriteIfPossible = false)
    out.write("half".getBytes(UTF_8))
    check("a file is there before it is closed", !files.exists(path))
    out.cancel()
    out.close()
    check("a cancelled file appears when it is closed", !files.exists(path))
    check("a temporary file is left", files.list(root).forall(!_.getPath.getName.contains("half")))
    fails("a file appears where no directory is", classOf[FileNotFoundException]) {
      write(files, new Path(root, "nowhere/file"), "x", overwrite = false)
    }
  }

  /** Deletes a file without its checksum, as people do who roll back: the next file of its name is read as it is. */
  private def strayChecksums(files: CheckpointFileManager, root: Path, directory: Local): Unit =
    for (overwrite <- Seq(false, true)) {
      val path = new Path(root, s"rolled-back-$overwrite")
      write(files, path, "before", overwrite)
      Files.delete(directory.resolve(path.getName))
      write(files, path, "after it", overwrite)
      check("a new file is read with the checksum of another", verified(path) == "after it")
      val bytes = Files.readAllBytes(directory.resolve(path.getName))
      bytes(3) = (bytes(3) ^ 1).toByte
      Files.write(directory.resolve(path.getName), bytes)
      fails("a flipped bit is read", classOf[ChecksumException])(verified(path))
    }

  private def othersStay(root: Path): Unit = {
    val conf = new Configuration()
    conf.set("spark.sql.streaming.checkpointFileManagerClass", classOf[CheckpointFiles].getName)
    check("Spark does not make the manager", CheckpointFileManager.create(root, conf).isInstanceOf[CheckpointFiles])
    check("the agent writes by this manager", !SparksFileManager.of(root, conf).isInstanceOf[CheckpointFiles])
    conf.set("fs.viewfs.mounttable.default.link./mounted", root.toString)
    val mounted = new Path("viewfs:///mounted/view")
    val others = new CheckpointFiles(mounted, conf)
    others.createCheckpointDirectory()
    write(others, new Path(mounted, "0"), "text", overwrite = false)
    check("files of a remote file system are not made by Spark's manager",
      !others.isLocal && read(new CheckpointFiles(root, conf), new Path(root, "view/0")) == "text")
  }

  def main(arguments: Array[String]): Unit = {
    val root = Paths.get(arguments(0))
    Seq("022", "077", "002").foreach(sameAsSparks(root, _))
    val directory = root.resolve("cases")
    val path = new Path(directory.toUri)
    val files = new CheckpointFiles(path, new Configuration())
    files.createCheckpointDirectory()
    neverHalf(files, path)
    oneWriterWins(files, path)
    strayChecksums(files, path, directory)
    othersStay(path)
    check("the local file system does not count as local", files.isLocal)
    println("checkpoint files equal Spark's")
  }
}
