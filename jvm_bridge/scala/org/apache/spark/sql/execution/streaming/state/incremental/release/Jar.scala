package org.apache.spark.sql.execution.streaming.state.incremental.release

import java.io.IOException
import java.net.{URI, URL}
import java.nio.file.{Files, Path, Paths, StandardCopyOption}
import java.util.Properties

import scala.jdk.CollectionConverters._
import scala.util.Try

import org.apache.spark.{SPARK_VERSION, SparkConf, SparkEnv}
import org.apache.spark.internal.Logging
import org.apache.spark.util.Utils

/** The state store's jars on the class path, known by the stamp that the build puts into each. For any thread. */
object Jar extends Logging {
  private val Stamp = "incremental-state-store.properties"

  /** The archive of the package's Python code in the jar. */
  val PythonCode: String = "state_store_agent.zip"

  private lazy val codeDirectory: Path = {
    val conf = Option(SparkEnv.get).map(_.conf).getOrElse(new SparkConf)
    Utils.createTempDir(Utils.getLocalDir(conf), "state-store-code").toPath
  }

  /**
   * Returns the archive as a file of this machine, for workers whose Python lacks the package; it is removed with the
   * JVM. None if the jar has none, or the disk fails: workers that have the package do not need it.
   */
  def pythonCode: Option[Path] = synchronized {
    try unpack(PythonCode, Files.createDirectories(codeDirectory))
    catch {
      case e: IOException =>
        logWarning(s"Python workers that lack the package state_store do not find it in the jar either: $e")
        None
    }
  }

  /** Copies a file of the jar into a directory, unless it is there already; None if the jar does not have it. */
  def unpack(resource: String, into: Path): Option[Path] = {
    val target = into.resolve(resource)
    if (Files.exists(target)) return Some(target)
    Option(getClass.getResourceAsStream("/" + resource)).map { in =>
      val unfinished = into.resolve(resource + ".tmp")
      try Files.copy(in, unfinished, StandardCopyOption.REPLACE_EXISTING)
      finally in.close()
      Files.move(unfinished, target, StandardCopyOption.ATOMIC_MOVE)
    }
  }

  private lazy val mismatch: Option[String] = {
    val places = getClass.getClassLoader.getResources(Stamp).asScala.toSeq
    problem(places.map(place => place -> read(place)), SPARK_VERSION)
  }

  /** Throws an IllegalStateException if the jar is for another Spark, or if two jars differ. */
  def check(): Unit = mismatch.foreach(text => throw new IllegalStateException(text))

  /**
   * Returns the reason why the jar does not work with this Spark, as a sentence that says what to do; None if it works.
   */
  def problem: Option[String] = mismatch

  private[release] def problem(stamps: Seq[(URL, Map[String, String])], spark: String): Option[String] = {
    def madeFor(stamp: Map[String, String]): String = minor(stamp.getOrElse("spark", ""))
    val advice = s"Keep the one jar for Spark ${minor(spark)}, whose path `state-store jar` prints."
    if (stamps.map(_._2).distinct.length > 1) {
      val named = stamps.map { case (place, stamp) =>
        s"${fileOf(place)} (release ${stamp.getOrElse("version", "unknown")} " +
          s"for Spark ${madeFor(stamp)})"
      }
      Some("different jars of the incremental state store are on the class path: " +
        s"${named.sorted.mkString(", ")}. $advice")
    } else {
      stamps.headOption.map(_._2).filter(madeFor(_) != minor(spark)).map { stamp =>
        "this jar of the incremental state store was built for Spark " +
          s"${madeFor(stamp)} and Spark is $spark. $advice"
      }
    }
  }

  private def fileOf(place: URL): String = {
    val uri = place.getPath.stripSuffix("!/" + Stamp)
    Try(Paths.get(new URI(uri)).toString).getOrElse(uri)
  }

  private def minor(version: String): String = version.split('.').take(2).mkString(".")

  private def read(place: URL): Map[String, String] = {
    val properties = new Properties
    val in = place.openStream()
    try properties.load(in)
    finally in.close()
    properties.asScala.toMap
  }
}
