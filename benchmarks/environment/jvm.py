"""The driver JVM of the store-level scenarios.

It is compiled with the Scala compiler that pyspark carries, and runs on pyspark's jars.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyspark

from benchmarks.environment import providers
from state_store.session.build import compile_scala, java
from state_store.session.jar import LOG, OPENED
from state_store.session.releases import BuildError

SOURCES = Path(__file__).resolve().parents[1] / "scala" / "driver"
BUILD = Path(__file__).resolve().parents[2] / "build" / "benchmarks"
SPARK_JARS = Path(pyspark.__file__).resolve().parent / "jars"
MAIN = "statestore.benchmark.Main"


class DriverError(RuntimeError):
    """The driver did not compile, or a run of it ended before its last case.

    The message has the end of its log.
    """


def compiled() -> Path:
    """Return the jar of the driver for the installed pyspark; compile it if a source has changed."""
    return compiled_sources("driver", sorted(SOURCES.glob("*.scala")))


def compiled_sources(name: str, sources: Sequence[Path], against: Sequence[Path] = ()) -> Path:
    """Return the jar of these sources, compiled against Spark's jars and those in `against`.

    A jar of the same sources is reused. Raises DriverError with the compiler's output.
    """
    digest = hashlib.sha256(pyspark.__version__.encode())
    for source in [*sources, *against]:
        digest.update(source.read_bytes())
    target = BUILD / f"{name}-{digest.hexdigest()[:16]}.jar"
    if target.is_file():
        return target
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="scalac-", dir=BUILD) as scratch:
        fresh = Path(scratch) / target.name
        try:
            compile_scala(SPARK_JARS, sources, fresh, against)
        except BuildError as error:
            raise DriverError(f"the benchmark's {name}: {error}") from error
        fresh.replace(target)
    return target


def run(
    cases: Sequence[Mapping[str, Any]],
    *,
    heap_mb: int = 3072,
    touch_heap: bool = False,
    timeout_s: int,
    log: Path,
    more_classes: Sequence[Path] = (),
    archived: bool = False,
) -> list[dict[str, Any]]:
    """Run cases in one JVM and return its events in order.

    Args:
        cases: the cases, as the driver reads them.
        log: gets the output of the JVM.
        heap_mb: the size of the heap.
        touch_heap: make the whole heap resident from the start, so that growth is native memory.
        more_classes: jars in addition to the driver's own.
        archived: True loads classes from an archive that the first such JVM leaves, for short runs.
        timeout_s: the time after which the JVM is killed.

    Raises:
        DriverError: the JVM fails, or does not end in time.
    """
    classes = [compiled(), *more_classes]
    with tempfile.TemporaryDirectory(prefix="state-store-benchmark-") as name:
        work = Path(name)
        spec = {"work": str(work / "cases"), "spark_conf": _spark_conf(work), "cases": list(cases)}
        (work / "spec.json").write_text(json.dumps(spec))
        (work / "log4j2.properties").write_text(LOG)
        events = work / "events.jsonl"
        command = [
            *_command(work, classes, heap_mb, touch_heap, archived),
            MAIN,
            f"{work}/spec.json",
            str(events),
        ]
        with open(log, "ab") as sink:
            try:
                code = subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, timeout=timeout_s
                ).returncode
            except subprocess.TimeoutExpired:
                code = None
        read = [json.loads(line) for line in events.read_text().splitlines()] if events.exists() else []
        if code != 0:
            why = f"did not end within {timeout_s} s" if code is None else f"ended with {code}"
            raise DriverError(
                f"the driver JVM {why} after {len(read)} events; its log is {log}:\n{_tail(log)}"
            )
        return read


def _command(
    work: Path, classes: Sequence[Path], heap_mb: int, touch_heap: bool, archived: bool
) -> list[str]:
    jar = providers.jar_for(pyspark.__version__)
    ours = [*classes, *([jar] if jar else [])]
    class_path = [*map(str, ours), f"{SPARK_JARS}/*"]
    options = [f"-Xmx{heap_mb}m", "-XX:+UseG1GC", "-XX:+IgnoreUnrecognizedVMOptions"]
    if touch_heap:
        options += [f"-Xms{heap_mb}m", "-XX:+AlwaysPreTouch"]
    options += ["--add-modules=jdk.incubator.vector"]
    options += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
    options += [f"-Dlog4j2.configurationFile={work}/log4j2.properties", f"-Djava.io.tmpdir={work}"]
    if archived:
        options += [_archive_option(ours), "-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off"]
    return [java(), *options, "-cp", ":".join(class_path)]


def _archive_option(jars: Sequence[Path]) -> str:
    """Return the options with which a JVM takes its classes from an archive, or writes it when it ends."""
    digest = hashlib.sha256(f"{pyspark.__version__} {pyspark.__file__}".encode())
    for jar in jars:
        digest.update(f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}".encode())
    archive = BUILD / f"classes-{digest.hexdigest()[:16]}.jsa"
    if archive.exists():
        return f"-XX:SharedArchiveFile={archive}"
    for old in BUILD.glob("classes-*.jsa"):
        old.unlink()
    return f"-XX:ArchiveClassesAtExit={archive}"


def _spark_conf(work: Path) -> dict[str, str]:
    (work / "local").mkdir()
    return {
        "spark.ui.enabled": "false",
        "spark.local.dir": str(work / "local"),
        "spark.pyspark.python": sys.executable,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }


def _tail(log: Path, lines: int = 25) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
