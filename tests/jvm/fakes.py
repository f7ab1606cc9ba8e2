"""Stand-ins for the Java that the build of the jar starts, and for the Spark directory that it reads."""

from __future__ import annotations

from pathlib import Path

JAVA = """#!/bin/sh
[ "$1" = -version ] && {{ echo 'openjdk version "17.0.2"' >&2; exit; }}
echo compiled >> "{log}"
sleep 0.2
while [ $# -gt 0 ]; do [ "$1" = -d ] && classes=$2; shift; done
echo class > "$classes/Provider.class"
"""


class Compilations:
    """A Java in `home` that makes one class, and counts how often it did."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "jdk"
        self._log = directory / "compilations"
        self._log.touch()
        program = self.home / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(JAVA.format(log=self._log))
        program.chmod(0o755)

    @property
    def count(self) -> int:
        return len(self._log.read_text().splitlines())


def spark_directory(directory: Path, version: str) -> Path:
    """Make a package directory of pyspark with the parts of a version that the build reads."""
    (directory / "jars").mkdir(parents=True)
    (directory / "jars" / f"spark-sql_2.13-{version}.jar").touch()
    return directory
