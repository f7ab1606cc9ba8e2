"""Measures the store's own SST reader and writer beside RocksDB's through JNI, side by side in one JVM.

    python -m benchmarks.sst [--json OUT] [NAME=VALUE]...

Every subject does the same in turns and must give the same answers (`scala/sst/SstComparison.scala` names the
settings: keys, value, changed, deltas, operations, turns, warm, writes). What counts is the CPU time of the
thread, which other work on the machine disturbs least, and the ratio to our own within the run. The directory
for the files is that of `TMPDIR`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyspark

from benchmarks import jvm, providers

SOURCES = Path(__file__).resolve().parent / "scala" / "sst"
MAIN = "org.apache.spark.sql.execution.streaming.state.incremental.base.SstComparison"
OWN = "own"
_OPENED = ("java.nio", "sun.nio.ch", "jdk.internal.ref")

Figure = dict[str, Any]


def measure(settings: Sequence[str], timeout_s: int = 1800) -> list[Figure]:
    """Runs the comparison; a figure for each operation and subject. Raises DriverError when it fails."""
    jar = providers.jar_for(pyspark.__version__)
    if jar is None:
        raise jvm.DriverError(
            f"there is no jar of the state store for Spark {pyspark.__version__}: run `make setup`"
        )
    classes = jvm.compiled_sources("sst", sorted(SOURCES.glob("*.scala")), [jar])
    opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    path = ":".join([str(classes), str(jar), f"{jvm.SPARK_JARS}/*"])
    with tempfile.TemporaryDirectory(prefix="state-store-benchmark-") as work:
        command = [jvm.java(), "-Xmx2g", *opens, "-cp", path, MAIN, *settings, f"directory={work}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode:
        raise jvm.DriverError(f"the comparison ended with {done.returncode}:\n{done.stderr[-4000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def table(figures: Iterable[Figure]) -> str:
    """The figures as Markdown: a line for each operation, CPU nanoseconds and multiples of our own."""
    by_operation: dict[str, list[Figure]] = {}
    for figure in figures:
        by_operation.setdefault(figure["what"], []).append(figure)
    lines = ["| | own | others, as multiples of it |", "|---|---|---|"]
    for what, subjects in by_operation.items():
        own = next(subject["cpu_ns"] for subject in subjects if subject["subject"] == OWN)
        others = [f"{one['subject']}: {one['cpu_ns'] / own:.2f}" for one in subjects if one["subject"] != OWN]
        lines.append(f"| {what} | {own:,.0f} ns | {'; '.join(others)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sst", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the figures there")
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE")
    given = parser.parse_args()
    figures = measure(given.settings)
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1) + "\n")
    print(table(figures))


if __name__ == "__main__":
    main()
