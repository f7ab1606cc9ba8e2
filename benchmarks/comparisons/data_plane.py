"""Measure the data plane alone, by phase of a batch, with this jar and optionally with another one.

    python -m benchmarks.comparisons.data_plane [--beside JAR] [--turns N] [--json OUT] [NAME=VALUE]...

Bytes go in and out, without Spark's API, an agent or storage. `scala/data_plane/DataPlane.scala` names the
settings: pattern, keys, batch, batches, value, budget, start, merge. `--beside` names a jar of the state
store from before a change. The same program is compiled against each, and both run in turns, each in its own
JVM. The figures are the CPU time of the thread, as medians over the turns, and the ratio to the jar of this
checkout. The directory for the files is that of `TMPDIR`.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.comparisons.in_one_jvm import Comparison, Figure

OWN = "own"
BESIDE = "beside"
COMPARISON = Comparison(
    "data_plane",
    "org.apache.spark.sql.execution.streaming.state.incremental.DataPlane",
    ("java.nio", "sun.nio.ch", "jdk.internal.ref"),
    is_inside=True,
)


def measure(settings: Sequence[str], other_jar: Path | None = None, turns: int = 1) -> list[Figure]:
    """Return a figure for each phase of each run, in order; raise DriverError if one fails."""
    jars = {OWN: None} if other_jar is None else {OWN: None, BESIDE: other_jar}
    return [
        {"subject": subject, **figure}
        for _ in range(turns)
        for subject, jar in jars.items()
        for figure in COMPARISON.measure(settings, jar=jar)
    ]


def table(figures: Iterable[Figure]) -> str:
    """Return the figures as Markdown: a line for each phase, in microseconds, and multiples of this store."""
    by_phase: dict[str, dict[str, list[Figure]]] = {}
    for figure in figures:
        by_phase.setdefault(figure["what"], {}).setdefault(figure["subject"], []).append(figure)
    lines = ["| | CPU us | us | beside, as multiples of it |", "|---|---|---|---|"]
    for phase, subjects in by_phase.items():
        cpu, passed = (
            {name: _median(of, kind) for name, of in subjects.items()} for kind in ("cpu_ns", "ns")
        )
        other = (
            f"CPU {cpu[BESIDE] / cpu[OWN]:.2f}, {passed[BESIDE] / passed[OWN]:.2f}" if BESIDE in cpu else ""
        )
        lines.append(f"| {phase} | {cpu[OWN] / 1000:,.3f} | {passed[OWN] / 1000:,.3f} | {other} |")
    return "\n".join(lines)


def _median(figures: Iterable[Figure], kind: str) -> float:
    return statistics.median(figure[kind] for figure in figures)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.comparisons.{COMPARISON.name}",
        description=(__doc__ or "").split("\n", 1)[0],
    )
    parser.add_argument(
        "--beside", type=Path, metavar="JAR", help="another jar of the state store to run in turns"
    )
    parser.add_argument("--turns", type=int, default=3, help="runs of each jar (default: 3)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="file for the figures of every run")
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE")
    options = parser.parse_args()
    if options.beside is not None and not options.beside.is_file():
        parser.error(f"there is no jar {options.beside}")
    figures = measure(options.settings, options.beside, options.turns)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    print(table(figures))


if __name__ == "__main__":
    main()
