"""Measures the commits of small batches: the time of each in its task, and how often its thread waits.

    python -m benchmarks.scenarios.commits [--turns N] [--jar JAR] [--json OUT] [NAME=VALUE ...]

Eight stores of one executor change 1,000 rows each in a batch, two tasks at a time, while merges run.
Spark's stores and this one take turns, each in a JVM of its own, with checkpoints below `TMPDIR`. With
`--jar` another build of this store takes part, too. Settings are those of `benchmarks/scala/commits`.

Times depend on what else the machine does. CPU time hardly does, and the number of waits (for another
thread, a process or the disk) not at all. `core ms` is the time for which the task could have run, had a core
been free. The JVM compiles code all the time at first: `warm=500` shows commits without that.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.comparisons.in_one_jvm import Comparison, Figure
from benchmarks.environment.providers import CHANGELOG, CONF, HDFS, INCREMENTAL_CLASS, OURS, Variant
from state_store.session.jar import OPENED

COMPARISON = Comparison(
    "commits", "statestore.benchmark.commits.CommitDriver", OPENED, (f"python={sys.executable}",)
)
OWN = Variant(
    "incremental",
    "this store",
    INCREMENTAL_CLASS,
    {CONF + "checkpointFormatVersion": "2", OURS + "minPauseBetweenMerges": "0", OURS + "maxDeltas": "20"},
)
COLUMNS = {
    "min_ms": "least ms",
    "median_ms": "median",
    "p99_ms": "99 of 100",
    "max_ms": "longest",
    "cpu_median_ms": "CPU ms",
    "delay_mean_ms": "core ms",
    "waits_mean": "waits",
    "batch_median_ms": "batch ms",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=3, help="JVMs of each store; default: 3")
    parser.add_argument("--jar", type=Path, help="another build of this store")
    parser.add_argument("--json", type=Path, metavar="OUT", help="file for the figures")
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE")
    options = parser.parse_args()
    figures = measure(options.turns, options.settings, options.jar)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(table(figures))


def measure(turns: int, settings: Sequence[str] = (), jar: Path | None = None) -> dict[str, list[Figure]]:
    """Return the figures of each turn of each store, by the store's title."""
    measured: list[tuple[str, Variant, Path | None]] = [
        (store.title, store, None) for store in (HDFS, CHANGELOG, OWN)
    ]
    if jar is not None:
        measured.append(("the other build", OWN, jar))
    figures: dict[str, list[Figure]] = {title: [] for title, _, _ in measured}
    for _ in range(turns):
        for title, variant, other in measured:
            options = [f"{name}={value}" for name, value in variant.conf.items()]
            arguments = [f"provider={variant.provider}", "turns=1", *options, *settings]
            figures[title] += COMPARISON.measure(arguments, jar=other)
    return figures


def table(figures_by_store: Mapping[str, Sequence[Figure]]) -> str:
    """Return the medians over the turns as Markdown, a line for each store."""
    lines = ["| | " + " | ".join(COLUMNS.values()) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for title, figures in figures_by_store.items():
        cells = (f"{statistics.median(figure[name] for figure in figures):.2f}" for name in COLUMNS)
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
