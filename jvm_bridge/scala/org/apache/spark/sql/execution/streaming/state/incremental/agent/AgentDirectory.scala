package org.apache.spark.sql.execution.streaming.state.incremental.agent

import java.io.IOException
import java.nio.file.{Files, Path, Paths, StandardCopyOption}
import java.nio.file.attribute.PosixFilePermissions
import java.util.Properties

import org.apache.spark.{SparkConf, SparkEnv}
import org.apache.spark.util.Utils

/**
 * Local directories of the agents of one JVM, each of which replaces the one before: a directory with a short path
 * for sockets, one below each of Spark's local directories for their files, and the program that starts them. All
 * are of mode 0700 and are removed with the JVM.
 */
final class AgentDirectory {
  private var sockets: Path = AgentDirectory.shortDirectory()

  /** Directories for local files, one on each of Spark's disks. */
  val directories: Seq[Path] =
    AgentDirectory.localDirectories().map(parent => AgentDirectory.privateDirectory(Paths.get(parent)))

  /** Returns the first of the directories. */
  def directory: Path = directories.head
  private var agents = 0

  /** Returns the socket for the next agent, in a new directory if a cleaner of temporary files removed the old one. */
  def nextSocket(): Path = synchronized {
    agents += 1
    if (!Files.isDirectory(sockets)) sockets = AgentDirectory.shortDirectory()
    sockets.resolve(s"agent-$agents.sock")
  }

  /** Returns the program that starts an agent, and the archive of its code in the jar; "" if the jar has none. */
  def program(): (Path, String) = synchronized {
    val code = AgentDirectory.createPrivately(directory.resolve("program"))
    val script = unpack("state-store-agent.py", code).getOrElse(
      throw new IOException("the jar of the state store is incomplete: it has no state-store-agent.py"))
    (script, unpack("state_store_agent.zip", code).map(_.toString).getOrElse(""))
  }

  def remove(): Unit = (sockets +: directories).foreach { path =>
    try Utils.deleteRecursively(path.toFile)
    catch { case _: IOException => () } // the agent, too, removes them when it ends
  }

  private def unpack(resource: String, into: Path): Option[Path] = {
    val target = into.resolve(resource)
    if (Files.exists(target)) return Some(target)
    Option(getClass.getResourceAsStream("/" + resource)).map { in =>
      val unfinished = into.resolve(resource + ".tmp")
      try Files.copy(in, unfinished, StandardCopyOption.REPLACE_EXISTING)
      finally in.close()
      Files.move(unfinished, target, StandardCopyOption.ATOMIC_MOVE)
    }
  }
}

object AgentDirectory {
  // sun_path has 108 bytes, one of them the terminating zero; leave room for "/agent-123456.sock".
  private val MaxDirectoryBytes = 106 - 20

  /** The version of the package from which this jar was built. */
  lazy val version: String = {
    val properties = new Properties
    Option(getClass.getResourceAsStream("/incremental-state-store.properties")).foreach { in =>
      try properties.load(in)
      finally in.close()
    }
    properties.getProperty("version", "unknown")
  }

  private def localDirectories(): Seq[String] =
    Utils.getOrCreateLocalRootDirs(Option(SparkEnv.get).map(_.conf).getOrElse(new SparkConf)).toSeq

  /** Makes a directory, and its missing parents, for their owner alone; an existing directory stays as it is. */
  def createPrivately(directory: Path): Path = Files.createDirectories(directory, ownerOnly)

  private val ownerOnly = PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"))

  private def privateDirectory(parent: Path): Path =
    Files.createTempDirectory(Files.createDirectories(parent), "state-store-", ownerOnly)

  private def shortDirectory(): Path = {
    val own = Paths.get(sys.props("java.io.tmpdir")).toAbsolutePath.normalize
    val bases = Seq(own, fromWorkingDirectory(own)) ++ Seq("/tmp", "/var/tmp", "/dev/shm").map(Paths.get(_))
    val fitting = bases.filter { base =>
      base.resolve("state-store-" + "0" * 20).toString.getBytes.length <= MaxDirectoryBytes && Files.isWritable(base)
    }
    privateDirectory(fitting.headOption.getOrElse(
      throw new IOException(
        s"none of ${bases.mkString(", ")} can hold the socket of the agent: each is too long for the path of " +
          "a Unix socket, or not writable. Set -Djava.io.tmpdir to a short path that can be written.")))
  }

  /**
   * Returns a path relative to the working directory if it is below it; else the path. A container of YARN has its
   * temporary directory there, with a long path, and nobody removes what a killed container left elsewhere.
   */
  private def fromWorkingDirectory(path: Path): Path = {
    val here = Paths.get("").toAbsolutePath
    if (path.startsWith(here) && path != here) here.relativize(path) else path
  }
}
