"""The versions of Spark and Java: the supported ones, with the names of the jars, and the installed one.

    python -m state_store.session.releases

prints a line for each release of Spark that runs on this Python, the newest first: the version that the tests
run on, and the name of its jar. The Makefile reads it. Pyspark's version and jars are found without importing
it. Everything here is immutable, safe for any thread.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from state_store.errors import OptionError


@dataclass(frozen=True)
class Release:
    """A release of Spark.

    Attributes:
        minor: its first two numbers, which name the jar.
        tested: the version that the tests run on.
        min_python: the oldest Python that this release of PySpark runs on.
    """

    minor: str
    tested: str
    min_python: tuple[int, int]

    def runs_here(self) -> bool:
        """Return True if the running Python can install this release of PySpark."""
        return sys.version_info[:2] >= self.min_python


RELEASES = (
    Release("4.0", "4.0.1", (3, 10)),
    Release("4.1", "4.1.1", (3, 10)),
    Release("4.2", "4.2.0", (3, 10)),
    Release("4.3", "4.3.0", (3, 11)),
)
SUPPORTED_SPARKS = tuple(release.minor for release in RELEASES)
SUPPORTED_JAVAS = (17, 21, 25)


def minor_of(spark_version: str) -> str:
    """Return `4.3` for `4.3.0`."""
    return ".".join(spark_version.split(".")[:2])


def is_supported(spark_version: str) -> bool:
    """Return True if the store is tested with this version of Spark."""
    return minor_of(spark_version) in SUPPORTED_SPARKS


def supported_sparks() -> str:
    """Return the supported releases for a message: `4.0, 4.1 and 4.2`."""
    return " and ".join([", ".join(SUPPORTED_SPARKS[:-1]), SUPPORTED_SPARKS[-1]])


def jar_name(spark_version: str) -> str:
    """Return the file name of the jar for a version of Spark such as `4.3.0`."""
    return f"incremental-state-store-spark-{minor_of(spark_version)}.jar"


class BuildError(OptionError):
    """The jar cannot be built; the message says why and what to do."""


class NoSpark(BuildError):
    """Pyspark with Spark's jars is missing, or its release is not supported."""


def installed_spark() -> str:
    """Return the version of the installed pyspark, such as 4.3.0. Raises OptionError without pyspark."""
    for distribution in ("pyspark", "pyspark-client", "pyspark-connect"):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    try:
        return spark_version(jars_of(installed_pyspark()))
    except BuildError:
        raise OptionError(
            f"pyspark is not installed in {sys.executable}, so its version is not known. "
            "Install pyspark, or name the version of Spark."
        ) from None


def installed_pyspark() -> Path:
    """Return the package directory of the installed pyspark. Raises BuildError without pyspark.

    In a Python worker of Spark, whose pyspark is an archive, it is the directory of the Spark distribution.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise NoSpark(
            f"pyspark is not installed in {sys.executable}: run `pip install 'pyspark>=4.0,<4.4'`, "
            "or name a directory with --pyspark"
        )
    package = Path(spec.origin).parent
    if package.parent.name != "pyspark.zip":
        return package
    home = package.parents[3]  # the archive is in HOME/python/lib, or in the directory of a container
    return home if (home / "jars").is_dir() else Path(os.environ.get("SPARK_HOME", home))


def jars_of(pyspark: Path) -> Path:
    """Return the directory of Spark's jars.

    Args:
        pyspark: a pyspark package directory, one in a Spark distribution, or a virtual environment.

    Raises:
        BuildError: there are no jars.
    """
    candidates = [
        pyspark / "jars",
        *([pyspark.parent.parent / "jars"] if pyspark.parent.name == "python" else []),
        *sorted(pyspark.glob("lib/python3*/site-packages/pyspark/jars")),
    ]
    for jars in candidates:
        if jars.is_dir():
            return jars
    raise NoSpark(f"{pyspark} is not a pyspark package directory: it has no jars directory")


def spark_version(jars: Path) -> str:
    """Return the version of the Spark whose jars these are, such as 4.3.0."""
    names = [
        match[1]
        for path in jars.iterdir()
        if (match := re.fullmatch(r"spark-sql_2\.13-(.+)\.jar", path.name))
    ]
    if len(names) != 1:
        raise NoSpark(f"{jars} has no spark-sql_2.13 jar: is it the jars directory of a Spark 4?")
    return names[0]


def main() -> None:
    """Print the releases that run on this Python."""
    for release in reversed(RELEASES):
        if release.runs_here():
            print(release.tested, jar_name(release.tested))


if __name__ == "__main__":
    main()
