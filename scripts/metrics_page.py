"""Write docs/metrics.md from the declarations in StoreMetrics.scala.

    python scripts/metrics_page.py [DIRECTORY]

`DIRECTORY` is the checkout (default: the current directory). Each metric is declared there once, in a group,
by its kind, its name in a query's progress and its description in Spark's UI.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from state_store.observe.generated_files import prometheus_section

UI_PREFIX = "State store: "
HEADINGS = {
    "commits": "Commits",
    "chain": "The chain of files",
    "merges": "Merges",
    "loads": "Loads and restores",
    "memory": "Memory and look-ups",
}
UNITS = {"sum": "number", "size": "bytes", "time": "ms", "largest": "number", "oldest": "ms"}
OVER_STORES = {"sum": "sum", "size": "sum", "time": "sum", "largest": "maximum", "oldest": "maximum"}

_INTRODUCTION = """\
# Metrics

Generated from the declarations in `StoreMetrics.scala` and `state_store/observe/metrics.py` by
`make docs`; do not edit.

## In Spark's progress

Each stateful operator of a query reports these under `stateOperators[...].customMetrics` of its progress
(`query.lastProgress`, listeners, the event log), and Spark's UI shows them with the operator. A value is for
one batch and for all stores of the operator together: their sum, or their maximum. Times that are summed are
of tasks that run side by side, so they may exceed the batch's duration. [operations.md](operations.md) says
which to look at when.
"""

_GROUP = re.compile(r"private val (\w+): Seq\[\(StateStoreCustomMetric, Reader\)\] = Seq\(")
_METRIC = re.compile(r'\b(sum|size|time|largest|oldest)\(\s*"(\w+)",\s*"((?:[^"\\]|\\.)*)"\s*\)')


@dataclass(frozen=True)
class Metric:
    """A declared metric; `kind` is the function that declares it."""

    group: str
    kind: str
    name: str
    meaning: str


def declared(source: str) -> list[Metric]:
    """Return the metrics of StoreMetrics.scala in order; raise ValueError for a group without a heading."""
    starts = list(_GROUP.finditer(source))
    metrics = []
    for start, following in zip(starts, [*starts[1:], None], strict=True):
        group = start.group(1)
        if group not in HEADINGS:
            raise ValueError(f"StoreMetrics.scala has a group '{group}'; give it a heading in {__file__}")
        text = source[start.end() : following.start() if following else len(source)]
        metrics += [Metric(group, kind, name, meaning) for kind, name, meaning in _METRIC.findall(text)]
    return metrics


def source_file(checkout: Path) -> Path:
    """Return the file that declares the metrics."""
    (path,) = (checkout / "jvm_bridge/scala").rglob("StoreMetrics.scala")
    return path


def page(checkout: Path) -> str:
    """Return the page as Markdown."""
    metrics = declared(source_file(checkout).read_text(encoding="utf-8"))
    return _INTRODUCTION + "".join(_sections(metrics)) + "\n" + prometheus_section()


def _sections(metrics: list[Metric]) -> Iterator[str]:
    for group in dict.fromkeys(metric.group for metric in metrics):
        yield f"\n### {HEADINGS[group]}\n\n| metric | unit | of the stores | meaning |\n|---|---|---|---|\n"
        for metric in metrics:
            if metric.group == group:
                meaning = metric.meaning.removeprefix(UI_PREFIX)
                yield f"| `{metric.name}` | {UNITS[metric.kind]} | {OVER_STORES[metric.kind]} | {meaning} |\n"


def main(checkout: Path) -> None:
    target = checkout / "docs/metrics.md"
    target.write_text(page(checkout), encoding="utf-8")
    print(f"wrote {target}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
