"""Facts that the figures depend on: processor, memory, disk, versions. Every result file has them."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.environment import jvm

_PACKAGES = ("pyspark", "rocksdict", "pyarrow", "pandas", "numpy")


def describe() -> dict[str, Any]:
    """Return facts of this machine and installation, as values for JSON. Needs Java."""
    return {
        "processor": _proc_field("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "file_system": _file_system(),
        "fsync_ms": _fsync_ms(),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "java": _java_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "jars": sorted(
            jar.name
            for jar in jvm.SPARK_JARS.glob("*.jar")
            if jar.name.startswith(("rocksdbjni", "hadoop-client-api"))
        ),
        "commit": _commit(),
        "command": " ".join(["python -m benchmarks", *sys.argv[1:]]),
        "time": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
    }


def _proc_field(file: str, name: str) -> str | None:
    for line in Path(file).read_text().splitlines():
        if line.startswith(name):
            return line.split(":", 1)[1].strip()
    return None


def _file_system() -> str:
    command = ["stat", "--file-system", "--format=%T", tempfile.gettempdir()]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def _fsync_ms(rounds: int = 20) -> dict[str, float]:
    """Measure the wait of a commit on a local disk, as medians in milliseconds.

    A new file of 160 KB (a delta of a thousand rows) is written, synced and linked to its name, and its
    directory is synced.
    """
    phases: dict[str, list[float]] = {"write": [], "file": [], "link": [], "directory": []}
    with tempfile.TemporaryDirectory() as work:
        directory = os.open(work, os.O_RDONLY)
        for i in range(rounds):
            clock = [time.perf_counter()]
            with open(Path(work, f"{i}.tmp"), "wb") as file:
                file.write(b"x" * 160_000)
                file.flush()
                clock.append(time.perf_counter())
                os.fsync(file.fileno())
            clock.append(time.perf_counter())
            os.link(file.name, Path(work, str(i)))
            clock.append(time.perf_counter())
            os.fsync(directory)
            clock.append(time.perf_counter())
            for name, start, end in zip(phases, clock, clock[1:], strict=False):
                phases[name].append(end - start)
        os.close(directory)
    return {name: round(statistics.median(times) * 1000, 3) for name, times in phases.items()}


def _java_version() -> str:
    done = subprocess.run([jvm.java(), "-version"], capture_output=True, text=True)
    lines = done.stderr.splitlines()
    return lines[1] if len(lines) > 1 else done.stderr.strip()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    done = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
    )
    return done.stdout.strip() or None
