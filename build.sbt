// The Scala sources as Metals and IntelliJ open them, against the newest Spark. Run `make setup` first: the jars are
// those of .venv. Nothing that is tested or shipped is built with sbt: `python -m state_store.session.build` compiles
// the jar, and `tests/scala_jars.py` the classes of the tests.

val spark = "4.3.0"
ThisBuild / scalaVersion := "2.13.18" // the compiler among Spark's jars

/** The sources for releases of Spark, the newest first. A file replaces those of the same name in the later ones. */
val releases = Seq("scala-4.3", "scala-4.2", "scala-4.1", "scala-4.0")

/**
 * Folders of tests and benchmarks, without Spark's own suites and the delayed client of S3 (benchmarks/scala_s3), which
 * need jars besides Spark's.
 */
val tests = Seq(
  "benchmarks/scala",
  "tests/benchmarks",
  "tests/bridge/scala",
  "tests/chaos/scala",
  "tests/core/settings/scala",
  "tests/core/storage/scala",
  "tests/jvm/scala",
  "tests/spark/failures/scala",
  "tests/spark/queries/scala",
  "tests/spark/queries/scala-4.2")

val shared = Def.settings(
  target := (ThisBuild / baseDirectory).value / "build" / "sbt" / name.value,
  autoScalaLibrary := false,
  Compile / unmanagedJars := {
    val root = (ThisBuild / baseDirectory).value
    val found = (root / ".venv" / "lib" ** s"spark-core_2.13-$spark.jar").get
    if (found.isEmpty) sys.error(s"There is no Spark $spark in .venv. Run `make setup`.")
    (found.head.getParentFile * "*.jar").classpath
  },
  Compile / unmanagedResourceDirectories := Nil,
  Test / unmanagedSourceDirectories := Nil,
  Test / unmanagedResourceDirectories := Nil)

lazy val root = project.in(file(".")).aggregate(bridge, probes).settings(shared, Compile / unmanagedSourceDirectories := Nil)

/** The data plane. */
lazy val bridge = project.in(file("jvm_bridge")).settings(
  shared,
  Compile / unmanagedSourceDirectories := Seq(baseDirectory.value / "scala", baseDirectory.value / releases.head),
  Compile / unmanagedSources ++= {
    val files = releases.flatMap(name => (baseDirectory.value / name ** "*.scala").get.map(baseDirectory.value / name -> _))
    val kept = files.groupBy { case (folder, file) => file.relativeTo(folder) }.values.map(_.minBy { case (folder, _) =>
      releases.indexOf(folder.getName)
    })
    kept.collect { case (folder, file) if folder.getName != releases.head => file }.toSeq
  },
  Compile / unmanagedResourceDirectories := Seq(baseDirectory.value / "resources"))

/** The Scala of tests and benchmarks. */
lazy val probes = project.in(file("tests")).dependsOn(bridge).settings(
  shared,
  Compile / unmanagedSourceDirectories := tests.map((ThisBuild / baseDirectory).value / _))
