"""Compiles the Scala sources against a pyspark, with the compiler that it brings, into the state store's jar.

    python -m jvm_bridge.build [--pyspark DIRECTORY]... [--out DIRECTORY] [--force]

Without ``--pyspark`` the installed pyspark is taken. Each jar is named after the Spark it is for and holds
the classes, the agent's pure-Python code as ``state_store_agent.zip``, and its version. The same sources give
the same bytes; a jar whose sources did not change is left alone, and classes whose sources did not change are
taken from the jar that is there.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent / "state_store"
SUPPORTED_SPARKS = ("4.2", "4.3")
SUPPORTED_JAVAS = (17, 21)
STAMP = "incremental-state-store.properties"
_DOS_EPOCH = (1980, 1, 1, 0, 0, 0)


class BuildError(Exception):
    """What keeps the jar from being built, and what to do about it."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m jvm_bridge.build", description=__doc__.split("\n", 1)[0])
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
        default=PACKAGE / "jars",
        metavar="DIRECTORY",
        help="where the jars go (default: state_store/jars)",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="build although the jar is up to date, and for a Spark that is not known to work",
    )
    given = parser.parse_args(arguments)
    try:
        for pyspark in given.pyspark or [installed_pyspark()]:
            jar, built = build(pyspark, given.out, force=given.force)
            print(f"{jar}: {'built' if built else 'up to date'}")
    except BuildError as error:
        print(f"jvm_bridge.build: {error}", file=sys.stderr)
        return 1
    return 0


def build(pyspark: Path, out: Path, *, force: bool = False) -> tuple[Path, bool]:
    """Builds the jar for that pyspark into ``out``; answers its path and whether anything had to be done.

    Raises BuildError when Java or Spark is missing or not supported, or the sources do not compile.
    """
    jars = _jars_of(pyspark)
    spark = spark_version(jars)
    minor = _supported(spark, force)
    sources = scala_sources(minor)
    resources = dict(_resources())
    digest, scala = _digest(spark, sources, resources), _digest(spark, sources, {})
    jar = out / f"incremental-state-store-spark-{minor}.jar"
    stamped = {} if force else _stamped(jar)
    if stamped.get("digest") == digest:
        return jar, False
    classes = _classes_in(jar) if stamped.get("scala") == scala else _compiled(jars, sources)
    stamp = f"version={_project_version()}\nspark={spark}\nscala={scala}\ndigest={digest}\n".encode()
    _write(
        jar,
        _archive(
            {**classes, **resources, STAMP: stamp, "META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\n\n"}
        ),
    )
    return jar, True


def _classes_in(jar: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(jar) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name.endswith(".class")}


def _compiled(jars: Path, sources: Iterable[Path]) -> dict[str, bytes]:
    """The classes of the sources, by their path in a jar."""
    check_java()
    with tempfile.TemporaryDirectory(prefix="state-store-build-") as temporary:
        classes = Path(temporary)
        compile_scala(jars, sources, classes)
        return {path.relative_to(classes).as_posix(): path.read_bytes() for path in _files(classes)}


def installed_pyspark() -> Path:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise BuildError(
            f"pyspark is not installed in {sys.executable}: run `pip install 'pyspark>=4.2,<4.4'`, "
            "or name a directory with --pyspark"
        )
    return Path(found.origin).parent


def spark_version(jars: Path) -> str:
    """The version of the Spark whose jars these are, such as 4.3.0."""
    names = [
        match[1]
        for path in jars.iterdir()
        if (match := re.fullmatch(r"spark-sql_2\.13-(.+)\.jar", path.name))
    ]
    if len(names) != 1:
        raise BuildError(f"{jars} has no spark-sql_2.13 jar: is it the jars directory of a Spark 4?")
    return names[0]


def scala_sources(minor: str) -> list[Path]:
    """The common sources and the shim of that Spark; an unknown Spark gets the newest shim."""
    shim = HERE / f"scala-{minor}"
    if not shim.is_dir():
        shim = HERE / f"scala-{SUPPORTED_SPARKS[-1]}"
    return sorted(path for directory in (HERE / "scala", shim) for path in directory.rglob("*.scala"))


def check_java() -> None:
    """Raises BuildError unless the Java that Spark would start is a supported one."""
    java = _java()
    wanted = " or ".join(map(str, SUPPORTED_JAVAS))
    how = (
        f"A JDK {wanted} is needed; on Debian or Ubuntu: `sudo apt-get install openjdk-17-jdk-headless`. "
        "Where several are installed, JAVA_HOME chooses."
    )
    try:
        shown = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=True, timeout=60
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise BuildError(f"{java} cannot be run ({error}). {how}") from None
    match = re.search(r'version "(\d+)', shown)
    if match is None or int(match[1]) not in SUPPORTED_JAVAS:
        raise BuildError(f"{java} is {shown.splitlines()[0] if shown else 'of an unknown version'}. {how}")


def compile_scala(jars: Path, sources: Iterable[Path], out: Path, libraries: Iterable[Path] = ()) -> None:
    """Compiles into ``out``, a directory or a jar, with the scalac among Spark's ``jars``.

    Raises BuildError with what the compiler prints.
    """
    spark = f"{jars}{os.sep}*"
    class_path = os.pathsep.join([*map(str, libraries), spark])
    command = [
        _java(), "-Xss8m", "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", spark,
        "scala.tools.nsc.Main", "-deprecation", "-release", str(SUPPORTED_JAVAS[0]), "-d", str(out),
        "-classpath", class_path, *map(str, sources),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise BuildError(f"the Scala sources do not compile:\n{done.stdout}{done.stderr}")


def _supported(spark: str, force: bool) -> str:
    minor = ".".join(spark.split(".")[:2])
    if minor not in SUPPORTED_SPARKS and not force:
        raise BuildError(
            f"Spark {spark} is not supported: {' and '.join(SUPPORTED_SPARKS)} are. --force compiles for it "
            f"with the shim of {SUPPORTED_SPARKS[-1]}; test it before you trust it."
        )
    return minor


def _jars_of(pyspark: Path) -> Path:
    candidates = [pyspark / "jars", *sorted(pyspark.glob("lib/python3*/site-packages/pyspark/jars"))]
    for jars in candidates:
        if jars.is_dir():
            return jars
    raise BuildError(f"{pyspark} is no pyspark package directory: it has no jars directory")


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java") or "java"


def _resources() -> Iterator[tuple[str, bytes]]:
    directory = HERE / "resources"
    for path in _files(directory):
        yield path.relative_to(directory).as_posix(), path.read_bytes()
    code = {
        f"state_store/{path.relative_to(PACKAGE).as_posix()}": path.read_bytes() for path in _agent_code()
    }
    yield "state_store_agent.zip", _archive(code)


def _agent_code() -> Iterator[Path]:
    return (path for path in _files(PACKAGE) if path.suffix == ".py" and "jars" not in path.parts)


def _files(directory: Path) -> Iterator[Path]:
    return (
        path for path in sorted(directory.rglob("*")) if path.is_file() and "__pycache__" not in path.parts
    )


def _project_version() -> str:
    text = (PACKAGE / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE)
    if match is None:
        raise BuildError(f"{PACKAGE / '__init__.py'} does not say __version__")
    return match[1]


def _digest(spark: str, sources: Iterable[Path], resources: dict[str, bytes]) -> str:
    """Of everything that the jar is made of, this module included."""
    total = hashlib.sha256(spark.encode())
    parts = [
        (path.relative_to(HERE).as_posix(), path.read_bytes())
        for path in (*sources, Path(__file__).resolve())
    ]
    for name, content in [*parts, *sorted(resources.items())]:
        total.update(f"\n{name} {len(content)}\n".encode())
        total.update(content)
    return total.hexdigest()


def _stamped(jar: Path) -> dict[str, str]:
    """What the jar says of itself; empty when there is none, or none that can be read."""
    try:
        with zipfile.ZipFile(jar) as archive:
            lines = archive.read(STAMP).decode().splitlines()
    except (OSError, KeyError, zipfile.BadZipFile):
        return {}
    return dict(line.split("=", 1) for line in lines)


def _archive(entries: dict[str, bytes]) -> bytes:
    """A zip of these entries: sorted, the manifest first, of one fixed time."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(entries, key=lambda name: (name != "META-INF/MANIFEST.MF", name)):
            entry = zipfile.ZipInfo(name, _DOS_EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, entries[name])
    return buffer.getvalue()


def _write(jar: Path, content: bytes) -> None:
    jar.parent.mkdir(parents=True, exist_ok=True)
    unfinished = jar.with_name(f"{jar.name}.{os.getpid()}.tmp")
    unfinished.write_bytes(content)
    unfinished.replace(jar)


if __name__ == "__main__":
    sys.exit(main())
