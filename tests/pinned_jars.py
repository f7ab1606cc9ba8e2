"""Jars of `maven_pins.txt`, fetched with Maven into the user's cache, once, and compared with checksums.

A library's jars are those that it needs besides Spark. `repository()` offers them to Spark's own resolver, so
that `spark.jars.packages` works as users set it, without a network.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import maven_jars

BROKER = "org.apache.kafka:kafka_2.13"
KAFKA = "org.apache.spark:spark-sql-kafka-0-10_2.13"
DELTA = "io.delta:delta-spark_2.13"
ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13"
SBT = "org.scala-sbt:sbt-launch"
YARN = "org.junit.jupiter:junit-jupiter-api"
"""First of the libraries that Hadoop's mini cluster for YARN calls, and does not bring."""

S3_SERVICE = "org.gaul:s3proxy"
"""A service of S3 without the clients of other clouds, which it does not load for objects in local files."""

PINS = Path(__file__).with_name("maven_pins.txt")

_POM = """
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
  <packaging>{packaging}</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = """<dependency>
  <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
  <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
</dependency>"""
_IVY_SETTINGS = """
<ivysettings>
  <settings defaultResolver="pinned"/>
  <caches defaultCacheDir="{directory}/ivy"/>
  <resolvers><ibiblio name="pinned" m2compatible="true" usepoms="true" root="{uri}"/></resolvers>
</ivysettings>
"""


@dataclass(frozen=True)
class Pin:
    """A jar of Maven Central and the SHA-256 of its file, in hexadecimal digits."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def name(self) -> str:
        """Return the file's name."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def coordinates(self) -> str:
        """Return the coordinates that `spark.jars.packages` takes."""
        return f"{self.group}:{self.artifact}:{self.version}"


def pins(library: str) -> list[Pin]:
    """Return the pins of a library, `group:artifact`, its own first."""
    found: list[Pin] = []
    for line in PINS.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        coordinates, sha256 = line.split()
        if not line.startswith(" ") and found:
            break
        if found or coordinates.startswith(f"{library}:"):
            found.append(Pin(*coordinates.split(":"), sha256))
    if not found:
        raise LookupError(f"{PINS.name} has no library {library}")
    return found


def jars(library: str) -> list[Path]:
    """Return the jars of a library and of all that it needs besides Spark."""
    wanted = pins(library)
    digest = hashlib.sha256(repr(wanted).encode()).hexdigest()[:12]
    tree = {"group": "tests", "artifact": "pinned", "version": "1", "packaging": "pom"}
    pom = _POM.format(**tree, dependencies=_dependencies(wanted))
    command = [f"{maven_jars.PLUGIN}:copy-dependencies", "-DincludeScope=runtime"]
    name = f"{wanted[0].artifact}-{wanted[0].version}-{digest}"
    return maven_jars.fetched(name, command, pom, lambda directory: check(directory, wanted))


def check(directory: Path, wanted: Iterable[Pin]) -> None:
    """Raise ValueError if a directory has other jars than those pinned, or other bytes in one."""
    expected = {pin.name: pin.sha256 for pin in wanted}
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.glob("*.jar")}
    if wrong := sorted(name for name, _ in expected.items() ^ found.items()):
        raise ValueError(f"Maven's files are not those of {PINS.name}: {', '.join(dict.fromkeys(wrong))}")


def repository(directory: Path, libraries: Iterable[str]) -> dict[str, str]:
    """Lay the jars of libraries out as a Maven repository in `directory`, which must exist.

    Returns:
        The configuration of a session that uses it; see `repository_conf`.
    """
    root = directory / "repository"
    for library in libraries:
        first, *needed = pins(library)
        places = {jar.name: jar for jar in jars(library)}
        for pin in (first, *needed):
            place = root.joinpath(*pin.group.split("."), pin.artifact, pin.version)
            place.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(places[pin.name], place / pin.name)
            pom = _POM.format(
                group=pin.group,
                artifact=pin.artifact,
                version=pin.version,
                packaging="jar",
                dependencies=_dependencies(needed) if pin is first else "",
            )
            (place / pin.name).with_suffix(".pom").write_text(pom, encoding="utf-8")
    settings = directory / "ivysettings.xml"
    settings.write_text(_IVY_SETTINGS.format(directory=directory, uri=root.as_uri()), encoding="utf-8")
    return repository_conf(directory)


def repository_conf(directory: Path | str) -> dict[str, str]:
    """Return the configuration with which Spark looks for packages in a repository, and nowhere else."""
    return {
        "spark.jars.ivySettings": f"{directory}/ivysettings.xml",
        "spark.jars.ivy": f"{directory}/ivy",
    }


def _dependencies(of: Iterable[Pin]) -> str:
    return "".join(_DEPENDENCY.format(pin.group, pin.artifact, pin.version) for pin in of)
