"""Compile the Scala sources against a pyspark, with the compiler that it brings, into the state store's jar.

    python -m state_store.session.build [--pyspark DIRECTORY]... [--out DIRECTORY] [--force]

The default of `--pyspark` is the installed pyspark. Each jar is named after its Spark and holds the classes,
the agent's pure-Python code as `state_store_agent.zip`, and its version. The same sources make the same
bytes. A jar whose sources did not change is left alone. If the Scala sources did not change, the classes are
copied and nothing is compiled.
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
from state_store.core.settings import option_pages
from state_store.core.storage.local_disk import remove_unneeded
from state_store.session import compiler, sources
from state_store.session.releases import (
    BuildError,
    NoSpark,
    installed_pyspark,
    is_supported,
    jar_name,
    jars_of,
    spark_version,
    supported_sparks,
)

JAR_DIRECTORY = sources.PACKAGE / "jars"
STAMP = "incremental-state-store.properties"
AGENT_CODE = "state_store_agent.zip"


@dataclass(frozen=True)
class Stamp:
    """The stamp in a jar: the Spark that it is for, and digests of its Scala and of all its sources."""

    version: str
    spark: str
    scala: str
    digest: str

    def text(self) -> str:
        """Return the stamp as the jar has it."""
        return "".join(f"{name}={value}\n" for name, value in vars(self).items())


def main(arguments: list[str] | None = None) -> int:
    """Build the jars that the command line names; return the exit code."""
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
        help="directory for the jars (default: state_store/jars)",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="compile even if the jar is up to date, and for Sparks that are not supported",
    )
    options = parser.parse_args(arguments)
    try:
        for pyspark in options.pyspark or [installed_pyspark()]:
            jar, built = build(pyspark, options.out, force=options.force)
            print(f"{jar}: {'built' if built else 'up to date'}")
    except BuildError as error:
        print(f"state_store.session.build: {error}", file=sys.stderr)
        return 1
    return 0


def build(pyspark: Path, out: Path = JAR_DIRECTORY, *, force: bool = False) -> tuple[Path, bool]:
    """Build the jar for a pyspark, unless it is up to date.

    Several threads and processes may call this at once: a jar appears as a whole or not at all.

    Args:
        pyspark: a pyspark package directory, or a virtual environment with one.
        out: the directory for the jar.
        force: True compiles in any case, and for Sparks that are not supported.

    Returns:
        The path of the jar, and True if it was built.

    Raises:
        BuildError: Java or Spark is missing or not supported, or the sources do not compile.
    """
    jars = jars_of(pyspark)
    spark = spark_version(jars)
    if not (force or is_supported(spark)):
        raise NoSpark(
            f"Spark {spark} is not supported: {supported_sparks()} are. --force compiles for it "
            f"with the sources for the newest release before it; test the result before you trust it."
        )
    stamp = current(spark)
    jar = out / jar_name(spark)
    if not force and stamped(jar) == stamp:
        return jar, False
    present_classes = None if force else _classes_of(stamp, jar, JAR_DIRECTORY / jar.name)
    entries = present_classes or _compiled(spark, jars)
    entries |= sources.resources()
    entries[option_pages.DECLARATIONS_RESOURCE] = option_pages.declarations()
    entries[AGENT_CODE] = sources.archive(sources.agent_code())
    entries[STAMP] = stamp.text().encode()
    entries[sources.MANIFEST] = b"Manifest-Version: 1.0\n\n"
    try:
        _write(jar, sources.archive(entries))
    except OSError as error:
        raise BuildError(f"{jar} cannot be written: {error}") from error
    return jar, True


def current(spark: str) -> Stamp:
    """Return the stamp of a jar for that exact version of Spark, made of the present sources."""
    scala = {path.relative_to(sources.directory()).as_posix(): path for path in sources.scala(spark)}
    parts = {name: path.read_bytes() for name, path in scala.items()}
    parts["compiler"] = Path(compiler.__file__).read_bytes()
    scala_digest = sources.digest({**parts, "spark": spark.encode()})
    rest = {**sources.resources(), **sources.agent_code(), "scala": scala_digest.encode()}
    return Stamp(__version__, spark, scala_digest, sources.digest(rest))


def stamped(jar: Path) -> Stamp | None:
    """Return the stamp of a jar; None if the jar is missing or damaged."""
    try:
        with zipfile.ZipFile(jar) as archive:
            lines = archive.read(STAMP).decode().splitlines()
    except (OSError, KeyError, zipfile.BadZipFile):
        return None
    fields = dict(line.split("=", 1) for line in lines if "=" in line)
    return Stamp(**{name: fields.get(name, "") for name in Stamp.__dataclass_fields__})


def _compiled(spark: str, jars: Path) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory(prefix="state-store-build-") as temporary:
        classes = Path(temporary)
        compiler.compile_scala(jars, sources.scala(spark), classes)
        return {path.relative_to(classes).as_posix(): path.read_bytes() for path in sources.files(classes)}


def _classes_of(stamp: Stamp, *jars: Path) -> dict[str, bytes] | None:
    """Return the classes of the first of these jars with the same Scala sources; None without one."""
    for jar in jars:
        other_stamp = stamped(jar)
        if other_stamp is not None and other_stamp.scala == stamp.scala:
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
            remove_unneeded(unfinished.name)
            raise


if __name__ == "__main__":
    sys.exit(main())
