"""Measures the cost of the tab "Checkpoints" in a driver whose executors report many stores.

    python -m benchmarks.comparisons.tab_cost [--json OUT] [NAME=VALUE]...

Reports are made as executors make them and come to the driver's endpoint; each batch becomes an event in
Spark's listener bus and a record in its status store (`scala/observed/ObservedDriver.scala` has the settings:
stores, batches, warm, turns, pause_ms). The figure of a batch is the CPU time of the process, all threads but
the sender's, less the CPU time that it takes in the same time without batches.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from benchmarks.comparisons.in_one_jvm import Comparison, Figure
from state_store.session.jar import OPENED

COMPARISON = Comparison(
    "observed",
    "org.apache.spark.sql.execution.streaming.state.incremental.observed.ObservedDriver",
    OPENED,
    is_inside=True,
)


def table(figures: Iterable[Figure]) -> str:
    """Return the figures as Markdown: CPU milliseconds of a batch, its share of a core, and of one scrape."""
    turns = list(figures)
    cpu_ms = statistics.median(turn["cpu_ms"] for turn in turns)
    scrape_ms = statistics.median(turn["scrape_ms"] for turn in turns)
    cells = (
        f"{turns[0]['stores']:,}",
        f"{cpu_ms:.2f}",
        f"{cpu_ms / 10:.2f} %",
        f"{scrape_ms:.2f}",
        f"{turns[-1]['event_bytes']:,}",
    )
    headings = "| stores | CPU ms a batch | of a core, batches of 1 s | CPU ms a scrape | bytes an event |"
    return "\n".join((headings, "|---" * len(cells) + "|", f"| {' | '.join(cells)} |"))


if __name__ == "__main__":
    COMPARISON.run(__doc__, table)
