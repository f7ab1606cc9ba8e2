"""Compile the Scala sources against a pyspark, with the compiler that it brings, into the state store's jar.

    python -m state_store.session.build [--pyspark DIRECTORY]... [--out DIRECTORY] [--force]

The default of `--pyspark` is the installed pyspark. Each jar is named after its Spark and holds the classes,
the agent's pure-Python code as `state_store_agent.zip`, and its version. The same sources make the same
bytes. A jar whose sources did not change is left alone (`Stamp`). If the Scala sources did not change, the
classes are copied and nothing is compiled.

In a checkout the Scala sources are in `jvm_bridge/` beside the package; an installed package has a copy of
that directory. The compiler is among the jars of pyspark, and a JRE is enough to run it; no JDK is needed.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from state_store import __version__
from state_store.core.checkpoint.names import EMPTY_PARENT
from state_store.core.checkpoint.stored_documents import FULL, INCREMENTAL, INGEST, META_KEY, RESERVED_FAMILY
from state_store.core.settings.option import (
    BYTE_UNITS,
    BYTES,
    DURATION,
    DURATION_UNITS_MS,
    MAX_BYTES,
    MAX_DURATION_MS,
    PREFIX,
    TOO_LARGE,
    too_small,
)
from state_store.core.settings.options import OPTIONS
from state_store.core.storage.local_disk import remove_unneeded
from state_store.session import releases

PACKAGE = Path(__file__).resolve().parent.parent
CHECKOUT = PACKAGE.parent / "jvm_bridge"
CARRIED = PACKAGE / "session" / "bridge"
JAR_DIRECTORY = PACKAGE / "jars"
STAMP = "incremental-state-store.properties"
AGENT_CODE = "state_store_agent.zip"
DECLARATIONS_RESOURCE = "incremental-state-store-declarations.json"
MANIFEST = "META-INF/MANIFEST.MF"
_DOS_EPOCH = (1980, 1, 1, 0, 0, 0)

MIN_JAVA = releases.SUPPORTED_JAVAS[0]
_HOW = (
    f"Java {', '.join(map(str, releases.SUPPORTED_JAVAS[:-1]))} or {releases.SUPPORTED_JAVAS[-1]} is needed, "
    "as by Spark; on Debian or Ubuntu: `sudo apt-get install openjdk-17-jdk-headless`. If several are "
    "installed, JAVA_HOME chooses."
)


class NoJava(releases.BuildError):
    """Java is missing, or its version is not supported by Spark."""


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
        for pyspark in options.pyspark or [releases.installed_pyspark()]:
            jar, built = build(pyspark, options.out, force=options.force)
            print(f"{jar}: {'built' if built else 'up to date'}")
    except releases.BuildError as error:
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
    jars = releases.jars_of(pyspark)
    spark = releases.spark_version(jars)
    if not (force or releases.is_supported(spark)):
        raise releases.NoSpark(
            f"Spark {spark} is not supported: {releases.supported_sparks()} are. --force compiles for it "
            f"with the sources for the newest release before it; test the result before you trust it."
        )
    stamp = current(spark)
    jar = out / releases.jar_name(spark)
    if not force and stamped(jar) == stamp:
        return jar, False
    present_classes = None if force else _classes_of(stamp, jar, JAR_DIRECTORY / jar.name)
    entries = present_classes or _compiled(spark, jars)
    entries |= resources()
    entries[DECLARATIONS_RESOURCE] = declarations()
    entries[AGENT_CODE] = _archive(agent_code())
    entries[STAMP] = stamp.text().encode()
    entries[MANIFEST] = b"Manifest-Version: 1.0\n\n"
    try:
        _write(jar, _archive(entries))
    except OSError as error:
        raise releases.BuildError(f"{jar} cannot be written: {error}") from error
    return jar, True


def current(spark: str) -> Stamp:
    """Return the stamp of a jar for that exact version of Spark, made of the present sources."""
    scala = {path.relative_to(source_directory()).as_posix(): path for path in scala_sources(spark)}
    parts = {name: path.read_bytes() for name, path in scala.items()}
    parts["build"] = Path(__file__).read_bytes()
    scala_digest = _digest({**parts, "spark": spark.encode()})
    rest = {**resources(), **agent_code(), "scala": scala_digest.encode()}
    return Stamp(__version__, spark, scala_digest, _digest(rest))


def stamped(jar: Path) -> Stamp | None:
    """Return the stamp of a jar; None if the jar is missing or damaged."""
    try:
        with zipfile.ZipFile(jar) as archive:
            lines = archive.read(STAMP).decode().splitlines()
    except (OSError, KeyError, zipfile.BadZipFile):
        return None
    fields = dict(line.split("=", 1) for line in lines if "=" in line)
    return Stamp(**{name: fields.get(name, "") for name in Stamp.__dataclass_fields__})


def _digest(parts: Mapping[str, bytes]) -> str:
    """Return one hash of all names and contents, as 64 hexadecimal digits."""
    total = hashlib.sha256()
    for name, content in sorted(parts.items()):
        total.update(f"{name} {len(content)}\n".encode())
        total.update(content)
    return total.hexdigest()


def source_directory() -> Path:
    """Return the directory with `scala`, a `scala-<minor>` for each Spark, and `resources`."""
    return CARRIED if CARRIED.is_dir() else CHECKOUT


def is_checkout() -> bool:
    """Return True if the package runs from a checkout, whose sources may change at any time."""
    return source_directory() == CHECKOUT


def scala_sources(spark: str) -> list[Path]:
    """Return the common sources and those for a version of Spark.

    A file of `scala-<minor>` is for that Spark and all later ones, up to the next release with a file of the
    same name. An unknown Spark gets those of the newest release before it.
    """
    version = _numbers(spark)
    own: dict[Path, Path] = {}
    for root in sorted(
        source_directory().glob("scala-*"), key=lambda root: _numbers(root.name[len("scala-") :])
    ):
        if _numbers(root.name[len("scala-") :]) <= version:
            own.update({path.relative_to(root): path for path in root.rglob("*.scala")})
    return sorted([*(source_directory() / "scala").rglob("*.scala"), *own.values()])


def _numbers(version: str) -> tuple[int, ...]:
    """Return `(4, 3)` for `4.3.0` and for `4.3`."""
    return tuple(int(part) for part in releases.minor_of(version).split("."))


def declarations() -> bytes:
    """Return what both planes share as JSON, for the jar: options, reserved names, kinds of merges.

    The same declarations make the same bytes.
    """
    options = {
        option.name: {
            "type": option.type.name,
            "unit": option.unit,
            "default": option.default,
            "least": option.type.least,
            "too_small": None if option.type.least is None else too_small(option.type.least, option.type),
            "scope": option.scope,
            "meaning": option.doc,
        }
        for option in OPTIONS
    }
    fields = {
        "prefix": PREFIX,
        "meta_key": META_KEY.hex(),
        "reserved_family": RESERVED_FAMILY,
        "empty_parent": EMPTY_PARENT,
        "merge_kinds": {"ingest": INGEST, "incremental": INCREMENTAL, "full": FULL},
        "units": {BYTES.name: BYTE_UNITS, DURATION.name: DURATION_UNITS_MS},
        "largest": {BYTES.name: MAX_BYTES, DURATION.name: MAX_DURATION_MS},
        "too_large": TOO_LARGE,
        "options": options,
    }
    return (json.dumps(fields, indent=1) + "\n").encode()


def resources() -> dict[str, bytes]:
    """Return the files that the jar has unchanged, by their names in it."""
    root = source_directory() / "resources"
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in _files_below(root)}


def agent_code() -> dict[str, bytes]:
    """Return the package's Python files by import path; the jar brings them to the executors."""
    python_files = (
        path for path in _files_below(PACKAGE) if path.suffix == ".py" and CARRIED not in path.parents
    )
    return {f"state_store/{path.relative_to(PACKAGE).as_posix()}": path.read_bytes() for path in python_files}


def _files_below(root: Path) -> Iterator[Path]:
    """Yield all files below a directory in order, without compiled Python."""
    return (path for path in sorted(root.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)


def _classes_of(stamp: Stamp, *jars: Path) -> dict[str, bytes] | None:
    """Return the classes of the first of these jars with the same Scala sources; None without one."""
    for jar in jars:
        other_stamp = stamped(jar)
        if other_stamp is not None and other_stamp.scala == stamp.scala:
            with zipfile.ZipFile(jar) as archive:
                return {name: archive.read(name) for name in archive.namelist() if name.endswith(".class")}
    return None


def _compiled(spark: str, jars: Path) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory(prefix="state-store-build-") as temporary:
        classes = Path(temporary)
        compile_scala(jars, scala_sources(spark), classes)
        return {path.relative_to(classes).as_posix(): path.read_bytes() for path in _files_below(classes)}


def java() -> str:
    """Return the path of the Java that Spark starts: that of JAVA_HOME, else the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java") or "java"


def java_version() -> int:
    """Return the major version of that Java. Raises NoJava unless it is supported."""
    program = java()
    try:
        version_text = subprocess.run(
            [program, "-version"], capture_output=True, text=True, check=True, timeout=60
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise NoJava(f"{program} cannot be run ({error}). {_HOW}") from None
    match = re.search(r'version "(\d+)', version_text)
    if match is None or int(match[1]) not in releases.SUPPORTED_JAVAS:
        version_line = version_text.splitlines()[0] if version_text else "of an unknown version"
        raise NoJava(f"{program} is {version_line}. {_HOW}")
    return int(match[1])


def compile_scala(jars: Path, sources: Iterable[Path], out: Path, libraries: Iterable[Path] = ()) -> None:
    """Compile with the scalac among Spark's `jars`.

    Args:
        jars: the directory of Spark's jars.
        sources: the Scala files.
        out: a directory or a jar for the classes.
        libraries: further jars for the class path.

    Raises:
        BuildError: the sources do not compile; the message has the compiler's output.
        NoJava: no Java can run the compiler.
    """
    spark = f"{jars}{os.sep}*"
    class_path = os.pathsep.join([*map(str, libraries), spark])
    command = [
        java(), "-Xss8m", "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", spark,
        "scala.tools.nsc.Main", "-deprecation", *_target(), "-d", str(out),
        "-classpath", class_path, *map(str, sources),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise releases.BuildError(f"the Scala sources do not compile:\n{done.stdout}{done.stderr}")


def _target() -> list[str]:
    """Return options for classes that run on the oldest supported Java.

    A JRE lacks the signatures of older Javas (`lib/ct.sym`), so these cannot be checked there.
    """
    if java_version() == MIN_JAVA or (_java_home() / "lib" / "ct.sym").is_file():
        return ["-release", str(MIN_JAVA)]
    return [f"-target:{MIN_JAVA}", "-nowarn"]


def _java_home() -> Path:
    return Path(shutil.which(java()) or java()).resolve().parent.parent


def _archive(entries: Mapping[str, bytes]) -> bytes:
    """Return a zip of these entries.

    They are sorted, the manifest first, with fixed times, so that the bytes are reproducible.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name in sorted(entries, key=lambda name: (name != MANIFEST, name)):
            entry = zipfile.ZipInfo(name, _DOS_EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            zipped.writestr(entry, entries[name])
    return buffer.getvalue()


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
