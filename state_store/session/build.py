"""Compiles the Scala sources against a pyspark, with the compiler that it brings, into the state store's jar.

    python -m state_store.session.build [--pyspark DIRECTORY]... [--out DIRECTORY] [--force]

Without `--pyspark` the installed pyspark is taken. Each jar is named after the Spark it is for and holds
the classes, the agent's pure-Python code as `state_store_agent.zip`, and its version. The same sources give
the same bytes. A jar whose sources did not change is left alone; where the Scala sources did not change, its
classes are taken over and nothing is compiled.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from state_store import __version__
from state_store.core.settings import declarations
from state_store.session import compiler, sources
from state_store.session.installed import BuildError, NoSpark, installed_pyspark, jars_of, spark_version
from state_store.session.releases import is_supported, jar_name, supported_sparks

JAR_DIRECTORY = sources.PACKAGE / "jars"
STAMP = "incremental-state-store.properties"
AGENT_CODE = "state_store_agent.zip"


@dataclass(frozen=True)
class Stamp:
    """What a jar says of itself: the Spark it was compiled for, digests of its Scala sources and of all."""

    version: str
    spark: str
    scala: str
    digest: str

    def text(self) -> str:
        return "".join(f"{name}={value}\n" for name, value in vars(self).items())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m state_store.session.build", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument(
        "--pyspark",
        action="append",
        type=Path,
        metavar="DIRECTORY",
        help="a pyspark package directory, or a virtual environment that has one (repeatable)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=JAR_DIRECTORY,
        metavar="DIRECTORY",
        help="where the jars go (default: state_store/jars)",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="compile although the jar is up to date, and for a Spark that is not known to work",
    )
    given = parser.parse_args(arguments)
    try:
        for pyspark in given.pyspark or [installed_pyspark()]:
            jar, built = build(pyspark, given.out, force=given.force)
            print(f"{jar}: {'built' if built else 'up to date'}")
    except BuildError as error:
        print(f"state_store.session.build: {error}", file=sys.stderr)
        return 1
    return 0


def build(pyspark: Path, out: Path = JAR_DIRECTORY, *, force: bool = False) -> tuple[Path, bool]:
    """Builds the jar for that pyspark into `out`; answers its path and whether anything had to be done.

    Raises BuildError when Java or Spark is missing or not supported, or the sources do not compile. Several
    threads and processes may do it at once: a jar appears whole or not at all.
    """
    jars = jars_of(pyspark)
    spark = spark_version(jars)
    if not (force or is_supported(spark)):
        raise NoSpark(
            f"Spark {spark} is not supported: {supported_sparks()} are. --force compiles for it "
            f"with the sources for the newest before it; test it before you trust it."
        )
    stamp = current(spark)
    jar = out / jar_name(spark)
    if not force and stamped(jar) == stamp:
        return jar, False
    kept = None if force else _classes_of(stamp, jar, JAR_DIRECTORY / jar.name)
    entries = kept or _compiled(spark, jars)
    entries |= sources.resources()
    entries[declarations.RESOURCE] = declarations.document()
    entries[AGENT_CODE] = sources.archive(sources.agent_code())
    entries[STAMP] = stamp.text().encode()
    entries[sources.MANIFEST] = b"Manifest-Version: 1.0\n\n"
    try:
        _write(jar, sources.archive(entries))
    except OSError as error:
        raise BuildError(f"{jar} cannot be written: {error}") from error
    return jar, True


def current(spark: str) -> Stamp:
    """The stamp of a jar for that exact version of Spark that is made of the sources as they are now."""
    scala = {path.relative_to(sources.directory()).as_posix(): path for path in sources.scala(spark)}
    parts = {name: path.read_bytes() for name, path in scala.items()}
    parts["compiler"] = Path(compiler.__file__).read_bytes()
    scala_digest = sources.digest({**parts, "spark": spark.encode()})
    rest = {**sources.resources(), **sources.agent_code(), "scala": scala_digest.encode()}
    return Stamp(__version__, spark, scala_digest, sources.digest(rest))


def stamped(jar: Path) -> Stamp | None:
    """The stamp of a jar; None where there is none or it is damaged."""
    try:
        with zipfile.ZipFile(jar) as archive:
            lines = archive.read(STAMP).decode().splitlines()
    except (OSError, KeyError, zipfile.BadZipFile):
        return None
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    return Stamp(**{name: found.get(name, "") for name in Stamp.__dataclass_fields__})


def _compiled(spark: str, jars: Path) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory(prefix="state-store-build-") as temporary:
        classes = Path(temporary)
        compiler.compile_scala(jars, sources.scala(spark), classes)
        return {path.relative_to(classes).as_posix(): path.read_bytes() for path in sources.files(classes)}


def _classes_of(stamp: Stamp, *jars: Path) -> dict[str, bytes] | None:
    """The classes of the first of these jars that was compiled from the same Scala sources."""
    for jar in jars:
        found = stamped(jar)
        if found is not None and found.scala == stamp.scala:
            with zipfile.ZipFile(jar) as archive:
                return {name: archive.read(name) for name in archive.namelist() if name.endswith(".class")}
    return None


def _write(jar: Path, content: bytes) -> None:
    jar.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=jar.parent, prefix=f".{jar.name}.", delete=False) as unfinished:
        try:
            unfinished.write(content)
            unfinished.flush()
            os.fsync(unfinished.fileno())
            Path(unfinished.name).chmod(0o644)
            Path(unfinished.name).replace(jar)
        except BaseException:
            Path(unfinished.name).unlink(missing_ok=True)
            raise


if __name__ == "__main__":
    sys.exit(main())
