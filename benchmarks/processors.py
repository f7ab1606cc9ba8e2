"""Measures what `transformWithState` asks of a store beside Spark's RocksDB with changelog, in one JVM.

    python -m benchmarks.processors [--json OUT] [NAME=VALUE]...

A task's share of a batch (open, rows, commit) for a value, a list and a map that each of its keys has, and
for timers; `scala/processors` says what is done and names the settings: keys, batch, batches, warm, kinds.
Both stores do the same in turns and have to read the same. Only the ratio within a run counts. The directory
for the files is that of `TMPDIR`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyspark

from benchmarks import jvm, providers
from state_store.jvm.program import OPENED

SOURCES = Path(__file__).resolve().parent / "scala" / "processors"
MAIN = "statestore.benchmark.processors.ProcessorComparison"
OWN = "incremental"

Figure = dict[str, Any]


def measure(settings: Sequence[str], timeout_s: int = 1800) -> list[Figure]:
    """Runs the comparison; a figure for each kind and subject. Raises DriverError when it fails."""
    jar = providers.jar_for(pyspark.__version__)
    if jar is None:
        raise jvm.DriverError(
            f"there is no jar of the state store for Spark {pyspark.__version__}: run `make setup`"
        )
    classes = jvm.compiled_sources("processors", sorted(SOURCES.glob("*.scala")))
    opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
    path = ":".join([str(classes), str(jar), f"{jvm.SPARK_JARS}/*"])
    with tempfile.TemporaryDirectory(prefix="state-store-benchmark-") as work:
        command = [jvm.java(), "-Xmx2g", *opens, "-cp", path, MAIN, *settings]
        command += [f"directory={work}", f"python={sys.executable}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode:
        raise jvm.DriverError(f"the comparison ended with {done.returncode}:\n{done.stderr[-4000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def table(figures: Iterable[Figure]) -> str:
    """The figures as Markdown: a line for each kind, milliseconds of a batch, multiples of our own."""
    by_kind: dict[str, dict[str, dict[str, float]]] = {}
    for figure in figures:
        by_kind.setdefault(figure["kind"], {})[figure["subject"]] = figure["ms"]
    lines = ["| | " + OWN + " | others, as multiples of it |", "|---|---|---|"]
    for kind, subjects in by_kind.items():
        own = subjects[OWN]
        others = [
            f"{name}: {ms['batch'] / own['batch']:.1f} (CPU {ms['batch cpu'] / own['batch cpu']:.1f}, "
            f"rows {ms['rows'] / own['rows']:.1f}, commit {ms['commit'] / own['commit']:.1f})"
            for name, ms in subjects.items()
            if name != OWN
        ]
        lines.append(
            f"| {kind} | {own['batch']:.0f} ms (rows {own['rows']:.0f}, commit {own['commit']:.0f}) "
            f"| {'; '.join(others)} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.processors", description=__doc__.split("\n", 1)[0]
    )
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the figures there")
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE")
    given = parser.parse_args()
    figures = measure(given.settings)
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1) + "\n")
    print(table(figures))


if __name__ == "__main__":
    main()
