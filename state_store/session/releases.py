"""The supported versions of Spark and Java, and the names of the jars.

    python -m state_store.session.releases

prints a line for each release of Spark that runs on this Python, the newest first: the version that the tests
run on, and the name of its jar. The Makefile reads it. Everything here is immutable, safe for any thread.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Release:
    """A release of Spark.

    Attributes:
        minor: its first two numbers, which name the jar.
        tested: the version that the tests run on.
        least_python: the oldest Python that this release of PySpark runs on.
        in_full: True if `make test` runs more than a few operators on it, and installs packages for it.
    """

    minor: str
    tested: str
    least_python: tuple[int, int]
    in_full: bool = True

    def runs_here(self) -> bool:
        """Return True if the running Python can install this release of PySpark."""
        return sys.version_info[:2] >= self.least_python


RELEASES = (
    Release("4.0", "4.0.1", (3, 9), in_full=False),
    Release("4.1", "4.1.1", (3, 10), in_full=False),
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


def main() -> None:
    """Print the releases that run on this Python."""
    for release in reversed(RELEASES):
        if release.runs_here():
            print(release.tested, jar_name(release.tested))


if __name__ == "__main__":
    main()
