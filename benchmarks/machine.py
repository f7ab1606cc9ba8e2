"""What the figures depend on: processor, memory, disk, versions. Goes into every result file."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks import jvm

_PACKAGES = ("pyspark", "rocksdict", "pyarrow", "pandas", "numpy")


def describe() -> dict[str, Any]:
    """Facts of this machine and installation, JSON-ready. Needs a java."""
    return {
        "processor": _proc_field("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "file_system": _file_system(),
        "fsync_ms": round(_fsync_ms(), 3),
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


def _fsync_ms(rounds: int = 20) -> float:
    """Median time to write 4 KiB and make them durable in the temporary directory."""
    times = []
    with tempfile.TemporaryFile() as file:
        for _ in range(rounds):
            started = time.perf_counter()
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - started)
    return sorted(times)[rounds // 2] * 1000


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
