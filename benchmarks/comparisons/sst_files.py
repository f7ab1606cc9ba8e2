"""Measure the store's own SST reader and writer beside RocksDB's through JNI, in one JVM.

    python -m benchmarks.comparisons.sst_files [--json OUT] [NAME=VALUE]...

Every subject does the same in turns and must give the same answers (`scala/sst/SstComparison.scala` names the
settings: keys, value, changed, deltas, operations, turns, warm, writes). The figures are the CPU time of the
thread, which other programs disturb least, and the ratio to our own within the run. The directory for the
files is that of `TMPDIR`.
"""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.comparisons.in_one_jvm import Comparison, Figure

OWN = "own"
COMPARISON = Comparison(
    "sst",
    "org.apache.spark.sql.execution.streaming.state.incremental.base.SstComparison",
    ("java.nio", "sun.nio.ch", "jdk.internal.ref"),
    is_inside=True,
)


def table(figures: Iterable[Figure]) -> str:
    """Return the figures as Markdown: a line for each operation, CPU nanoseconds, multiples of this store."""
    by_operation: dict[str, list[Figure]] = {}
    for figure in figures:
        by_operation.setdefault(figure["what"], []).append(figure)
    lines = ["| | own | others, as multiples of it |", "|---|---|---|"]
    for operation, subjects in by_operation.items():
        own = next(subject["cpu_ns"] for subject in subjects if subject["subject"] == OWN)
        others = [
            f"{figure['subject']}: {figure['cpu_ns'] / own:.2f}"
            for figure in subjects
            if figure["subject"] != OWN
        ]
        lines.append(f"| {operation} | {own:,.0f} ns | {'; '.join(others)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    COMPARISON.run(__doc__, table)
