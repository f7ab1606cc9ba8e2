"""Measure the store operations of `transformWithState` beside Spark's RocksDB with changelog, in one JVM.

    python -m benchmarks.comparisons.processors [--json OUT] [NAME=VALUE]...

Measured is a task's share of a batch (open, rows, commit) for a value, a list and a map of each key, and for
timers. `scala/processors` has the operations, and names the settings: keys, batch, batches, warm, kinds. Both
stores do the same in turns and have to read the same. Only the ratio within a run counts. The directory for
the files is that of `TMPDIR`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from benchmarks.comparisons.in_one_jvm import Comparison, Figure
from state_store.session.jar import OPENED

OWN = "incremental"
COMPARISON = Comparison(
    "processors",
    "statestore.benchmark.processors.ProcessorComparison",
    OPENED,
    settings=(f"python={sys.executable}",),
)


def table(figures: Iterable[Figure]) -> str:
    """Return the figures as Markdown: a line for each kind, ms of a batch, multiples of this store."""
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


if __name__ == "__main__":
    COMPARISON.run(__doc__, table)
