"""Options of the tests' JVMs, whose lives are so short that most of their time is the start.

`spark_options()` adds an archive of Spark's classes, loaded and verified (class data sharing of the JVM). It
is made once for each pyspark and Java, by a small query, and kept in `build/class-data`, because it holds
for the paths of this checkout alone; it halves the processor time of a start of Spark and a first batch.
`probe_options()` does the same for programs of the tests' own Scala, by a small batch. A process that would
wait for long, because the machine is busy, does without. STATE_STORE_TEST_ARCHIVE=no turns the archives off.
With `CHECKPOINT_FILES` sessions write their checkpoints without a process for each file; with `WORKERS` they
start Python workers quickly.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pyspark
import scala_jars

from state_store.session import releases
from state_store.session.jar import OPENED

VARIABLE = "STATE_STORE_TEST_ARCHIVE"
QUICK_START = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m "
    "-Xlog:disable -Xlog:all=warning,cds=off,cds+dynamic=off,class+path=off:stderr"
)
"""With one compiler the JVM reserves only 48 MB for code, which sessions of many queries fill.

It would write its warnings among the answers of the program, on the standard output.
"""
_STREAMING = "org.apache.spark.sql.execution.streaming."
CHECKPOINTING = _STREAMING if pyspark.__version__.startswith("4.0.") else _STREAMING + "checkpointing."
CHECKPOINT_FILES = {
    "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINTING + "FileSystemBasedCheckpointFileManager"
}
"""The default manager starts a process for each file that it writes to a local disk."""

WORKERS = {"spark.python.daemon.module": "prepared_workers"} if pyspark.__version__.startswith("4.3.") else {}
"""Configuration of workers that are forked with their modules; from Spark 4.3 on they import them.

This directory has to be in their PYTHONPATH.
"""

ARCHIVES = scala_jars.TESTS.parent / "build" / "class-data"
MAX_WAIT_S = 60.0
"""Longest time for which a process waits for an archive; later ones use it when it is there."""

Program = Callable[[Path, list[str]], tuple[list[str], str]]
"""Returns the command that an archive is made of, and its input, for a directory and Java options."""

SPARK_HOME = Path(pyspark.__file__).resolve().parent
_WARM_UP = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.range(100).selectExpr("id % 5 as k", "id as v").write.parquet(sys.argv[1] + "/in")
events = spark.readStream.schema("k long, v long").parquet(sys.argv[1] + "/in")
query = (
    events.groupBy("k").count().writeStream.outputMode("update").format("noop")
    .option("checkpointLocation", sys.argv[1] + "/checkpoint").trigger(availableNow=True).start()
)
query.awaitTermination()
"""


_OF_ONE_BATCH = (
    {"cmd": "provider", "provider": "p", "conf": {}},
    {"cmd": "begin", "provider": "p", "store": "s", "version": 0},
    {"cmd": "put", "store": "s", "rows": {"a": "1"}},
    {"cmd": "commit", "store": "s"},
    {"cmd": "close_all"},
)


@functools.cache
def probe_options() -> list[str]:
    """Return Java options for a program whose class path begins with `scala_jars.probes_class_path()`."""
    if os.environ.get(VARIABLE) == "no" or scala_jars.PROBES_VARIABLE in os.environ:
        return QUICK_START.split()
    jars = [scala_jars.probes_jar(), scala_jars.state_store_jar()]
    written = [(str(jar), jar.stat().st_size, jar.stat().st_mtime_ns) for jar in jars]
    return [*QUICK_START.split(), *_archive_options("probes", written, _probe_program, {})]


def _probe_program(room: Path, options: list[str]) -> tuple[list[str], str]:
    """Return the command of a batch on a store, and its input."""
    command = ["java", *options, f"-Djava.io.tmpdir={room}", "-cp", scala_jars.probes_class_path()]
    command += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
    command += ["org.apache.spark.sql.execution.streaming.state.incremental.probe.ProviderDriver"]
    asked = [{**request, "location": f"{room}/state"} for request in _OF_ONE_BATCH]
    return command, "".join(json.dumps(request) + "\n" for request in asked)


@functools.cache
def spark_options() -> str:
    """Return Java options for a driver or an executor of this pyspark, each a word for a shell."""
    if os.environ.get(VARIABLE) == "no":
        return QUICK_START
    if releases.minor_of(pyspark.__version__) != releases.SUPPORTED_SPARKS[-1]:
        return QUICK_START  # an archive does not pay for so few starts
    variables = {"SPARK_HOME": str(SPARK_HOME)}
    return shlex.join(
        [*QUICK_START.split(), *_archive_options("spark", (SPARK_HOME, _WARM_UP), _spark_program, variables)]
    )


def _spark_program(room: Path, options: list[str]) -> tuple[list[str], str]:
    """Return the command of a small query, and its input."""
    program = room / "warm_up.py"
    program.write_text(_WARM_UP)
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2]"]
    for setting in ("ui.enabled=false", "driver.host=127.0.0.1", "driver.bindAddress=127.0.0.1"):
        command += ["--conf", f"spark.{setting}"]
    return [*command, "--driver-java-options", shlex.join(options), str(program), str(room)], ""


def _archive_options(name: str, classes: object, program: Program, variables: Mapping[str, str]) -> list[str]:
    """Return the options for the archive of these classes; none if it is not there after MAX_WAIT_S."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    place = f"{name}-{pyspark.__version__}"
    archive = ARCHIVES / f"{place}-{hashlib.sha256(f'{java}{classes}'.encode()).hexdigest()[:16]}.jsa"
    errors: list[Exception] = []

    def make() -> None:
        with open(ARCHIVES / f"{place}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                if not archive.exists():
                    for old in ARCHIVES.glob(f"{place}-*.jsa"):
                        old.unlink()
                    _archive(archive, program, variables)
            except Exception as error:
                errors.append(error)

    if not archive.exists():
        ARCHIVES.mkdir(parents=True, exist_ok=True)
        maker = threading.Thread(target=make, name=f"archive of {place}", daemon=True)
        maker.start()
        maker.join(MAX_WAIT_S)
    if errors:
        raise errors[0]
    return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


def _archive(archive: Path, program: Program, variables: Mapping[str, str]) -> None:
    """Make an archive of the classes that a program loads; it gets its directory and Java options."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as room:
        fresh = Path(room) / archive.name
        options = [*QUICK_START.split(), f"-XX:ArchiveClassesAtExit={fresh}"]
        command, asked = program(Path(room), options)
        clean = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK_")}
        done = subprocess.run(
            command,
            input=asked,
            env={**clean, **variables, "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            check=False,
        )
        if not fresh.exists():
            raise RuntimeError(f"{shlex.join(command)} made no archive: {done.stderr[-4000:]}")
        fresh.replace(archive)
